"""Export of table changes to other tables and to folders of files."""
