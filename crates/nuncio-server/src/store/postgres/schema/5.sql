-- No table changes. Refs may be to metadata from now on, which older versions cannot put back.
SELECT 1;
