package olm

// Packages are the packages of the catalog that Start serves.
func Packages() []Package {
	return []Package{
		{Name: "etcd", CSV: "etcdoperator", Versions: []string{"0.9.0", "0.9.2", "0.9.4"}},
		{Name: "prometheus", CSV: "prometheusoperator", Versions: []string{"0.46.0", "0.47.0"}},

		// Dependencies, in the catalog itself and as images.
		{Name: "vault", CSV: "vaultoperator", Versions: []string{"1.0.0"}, Requires: "etcd"},
		{Name: "redis", CSV: "redisoperator", Versions: []string{"1.0.0", "1.1.0"}, Images: true},
		{Name: "storefront", CSV: "storefrontoperator", Versions: []string{"2.0.0"}, Requires: "redis", Images: true},

		{Name: "cassandra", CSV: "cassandraoperator", Versions: []string{"1.0.0", "1.1.0"}, Owns: "Cassandra"},

		// Several channels, one of them and one of its versions deprecated.
		{
			Name: "kafka", CSV: "kafkaoperator", Versions: []string{"1.0.0", "1.0.1", "1.1.0", "1.1.1"},
			Channels: map[string][]string{
				"stable-1.0": {"1.0.0", "1.0.1"},
				"stable-1.1": {"1.0.1", "1.1.0", "1.1.1"},
				"candidate":  {"1.1.0", "1.1.1"},
			},
			DefaultChannel: "stable-1.1",
			Deprecated: Deprecations{
				Channels: map[string]string{"stable-1.0": "channel stable-1.0 gets no more fixes, use stable-1.1"},
				Versions: map[string]string{"1.0.0": "kafkaoperator.v1.0.0 loses messages, use v1.0.1"},
			},
		},
		{
			Name: "mysql", CSV: "mysqloperator", Versions: []string{"8.0.0"},
			Deprecated: Deprecations{Package: "package mysql is no longer maintained, use another one"},
		},
	}
}
