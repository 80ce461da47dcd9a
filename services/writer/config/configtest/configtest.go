// Package configtest has a valid configuration of the writer for tests. None of its files exists.
package configtest

import (
	"maps"

	"github.com/slicefeed/slicefeed/services/internal/settings"
	"github.com/slicefeed/slicefeed/services/writer/config"
)

// Env returns the environment of a valid configuration.
func Env() map[string]string {
	return map[string]string{
		"INVENTORY_ADDRESS": "inventory.example:9443", "INVENTORY_SAN": "spiffe://example.org/slicefeed/inventory",
		"TLS_CERT_FILE": "cert.pem", "TLS_KEY_FILE": "key.pem", "TLS_PEER_CA_FILE": "ca.pem",
		"SECURED_SUBNET_CIDR": "10.0.1.0/24", "TARGET_NAMESPACE": "web", "TARGET_SERVICE_NAME": "shop",
	}
}

// Load loads the configuration of Env with changes.
func Load(changes map[string]string) (*config.Config, error) {
	env := Env()
	maps.Copy(env, changes)
	cfg := &config.Config{}
	return cfg, settings.Load(nil, func(name string) string { return env[name] }, cfg)
}
