"""Export the changes of tables to other tables and to folders of files."""
