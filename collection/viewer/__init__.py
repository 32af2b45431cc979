"""A web page of every data set and run below some folders: it only reads, and reads what still grows."""
