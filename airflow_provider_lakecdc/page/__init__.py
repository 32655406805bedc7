"""Show the page *Lakehouse* in Airflow: health of tables, the next plan, what jobs have done, the quarantine."""
