package synth

// LimitShards lets tests have shards without gigabytes.
func LimitShards(o *Options, bytes int64) { o.shard = bytes }
