-- Every tenant that ever had an event. Reads the whole inbox: only for a person who gave no tenant.
SELECT DISTINCT tenant FROM oncely.inbox LIMIT 10000
