"""What Alembic runs: the revisions on the connection that `migrate.upgrade` brought."""

from alembic import context

from roost.ledger.schema.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
