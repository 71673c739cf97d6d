-- A source's id by its name.
SELECT id FROM source WHERE name = %(name)s
