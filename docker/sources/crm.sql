CREATE TABLE contacts (id bigint PRIMARY KEY, name varchar(100) NOT NULL, email varchar(200), changed_at timestamp(6) DEFAULT current_timestamp(6));
INSERT INTO contacts (id, name, email) SELECT seq, concat('contact ', seq), concat('contact', seq, '@example.com') FROM seq_1_to_100;
