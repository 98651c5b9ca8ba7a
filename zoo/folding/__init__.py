"""Structure prediction over a set of proteins: what is asked, the plan of the work, the results."""
