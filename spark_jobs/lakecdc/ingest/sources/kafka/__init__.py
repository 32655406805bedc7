"""Read Kafka topics from the offsets that the tables keep, without a consumer group."""
