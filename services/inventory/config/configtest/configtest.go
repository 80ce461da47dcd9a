// Package configtest has a valid configuration of the inventory for tests. None of its files exists.
package configtest

// Env returns the environment of a valid configuration.
func Env() map[string]string {
	return map[string]string{
		"SECURED_SUBNET_CIDR": "10.0.1.0/24", "IONOS_TOKEN": "secret-token",
		"IONOS_DATACENTER_ID": "7d2f6e1a-9c34-4b58-8f0e-1a6b3c5d7e90", "IONOS_PRIVATE_LAN_ID": "2",
		"TLS_CERT_FILE": "cert.pem", "TLS_KEY_FILE": "key.pem", "TLS_PEER_CA_FILE": "ca.pem",
		"ALLOWED_CLIENTS_FILE": "clients.yaml",
	}
}

// SourceEnv returns the settings of a source that needs no cloud.
func SourceEnv(kind, setting, value string) map[string]string {
	env := map[string]string{"SOURCE_KIND": kind, "IONOS_TOKEN": "", "IONOS_DATACENTER_ID": "", "IONOS_PRIVATE_LAN_ID": ""}
	if setting != "" {
		env[setting] = value
	}
	return env
}
