"""The tables of the board, their migrations, and the connection to the database."""
