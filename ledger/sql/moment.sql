-- What time it is for the database.
SELECT now()
