package contract

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestPythonClientFollowsTheContractOfTheInventory(t *testing.T) {
	python, dir := findPython(t), t.TempDir()
	issueCertificates(t, dir)
	address, _ := startInventory(t, dir)
	runClient(t, python, dir, "inventory.py", address, map[string]func(){"change": func() { writeNodes(t, dir, 1) }})
}

// startInventory starts an inventory with a file of ready nodes.
func startInventory(t *testing.T, dir string) (address string, stop func()) {
	t.Helper()
	writeNodes(t, dir, -1)
	address = freePort(t)
	stop = startComponent(
		t, dir, "inventory", "SOURCE_KIND=file", "INVENTORY_FILE_PATH="+filepath.Join(dir, "nodes.json"), "SOURCE_POLL_INTERVAL=1s",
		"SECURED_SUBNET_CIDR=10.0.0.0/8", "LISTEN_ADDRESS="+address,
		"TLS_CERT_FILE="+filepath.Join(dir, "inventory.crt"), "TLS_KEY_FILE="+filepath.Join(dir, "inventory.key"),
		"TLS_PEER_CA_FILE="+filepath.Join(dir, "client-ca.crt"),
	)
	return address, stop
}

// writeNodes replaces the inventory's file: all nodes are ready except one; -1: none.
func writeNodes(t *testing.T, dir string, notReady int) {
	t.Helper()
	const nodes = 1200
	type record struct {
		Name   string `json:"name"`
		IP     string `json:"private_ip"`
		Ready  bool   `json:"ready"`
		Worker bool   `json:"worker"`
	}
	var all []record
	for n := range nodes {
		all = append(all, record{fmt.Sprintf("worker-%05d", n), fmt.Sprintf("10.0.%d.%d", n>>8, n&255), n != notReady, true})
	}
	text, err := json.Marshal(all)
	must(t, err)
	file := filepath.Join(dir, "nodes.json")
	must(t, os.WriteFile(file+".new", text, 0o600))
	must(t, os.Rename(file+".new", file))
}
