CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, city text, changed_at timestamptz DEFAULT now());
CREATE TABLE orders (
  id bigint PRIMARY KEY,
  customer_id bigint NOT NULL REFERENCES customers,
  status text NOT NULL,
  amount numeric(12, 2) NOT NULL,
  ordered_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO customers SELECT n, 'customer ' || n, (ARRAY['Bremen', 'Porto', 'Lyon'])[1 + n % 3] FROM generate_series(1, 100) n;
INSERT INTO orders SELECT n, 1 + n % 100, (ARRAY['open', 'paid', 'sent'])[1 + n % 3], n * 1.25, now() FROM generate_series(1, 1000) n;
