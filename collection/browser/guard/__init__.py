"""What a browser may reach: one classifier of URLs and addresses, asked wherever a request can leave."""
