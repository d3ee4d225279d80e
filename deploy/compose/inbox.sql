-- What the database's first start runs in it, as its superuser: the service's own role has a schema, and nothing else.
\set password `cat /run/secrets/inbox-password`
CREATE ROLE sfn LOGIN PASSWORD :'password';
REVOKE ALL ON DATABASE sfn FROM PUBLIC;
GRANT CONNECT ON DATABASE sfn TO sfn;
REVOKE ALL ON SCHEMA public FROM PUBLIC;
CREATE SCHEMA sfn AUTHORIZATION sfn;
