-- A source's kind: says how its names are compared.
SELECT kind FROM source WHERE id = %(id)s
