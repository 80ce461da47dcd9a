// Package stack has what the docker-compose stack consists of beside the two components: a job for each side, which creates its keys,
// accounts and objects. No function handles both sides: what belongs to a side is created by its job, in its volumes.
// docker-compose.yaml starts everything.
package stack

import (
	"fmt"
	"net/netip"
)

// The names and addresses of the stack. docker-compose.yaml has them too.
const (
	Namespace = "web"  // of the Service and the writers
	Service   = "shop" // without a selector
	NodePort  = 30080  // where the workers' backends listen
	Subnet    = "10.0.1.0/24"

	Datacenter = "7d2f6e1a-9c34-4b58-8f0e-1a6b3c5d7e90"
	PrivateLAN = 2 // of the workers

	InventorySAN = "spiffe://slicefeed.local/inventory"
	WriterSAN    = "spiffe://slicefeed.local/writer"
	OperatorSAN  = "spiffe://slicefeed.local/operator"
)

const publicLAN = 1

// Worker is a machine of the secured cluster.
type Worker struct {
	Name    string
	Server  string     // UUID of the machine in the cloud
	Address netip.Addr // on the private LAN, where its backend answers
}

// Workers are the three that the stack begins with.
func Workers() []Worker {
	workers := make([]Worker, 3)
	for i := range workers {
		workers[i] = Worker{
			Name:    fmt.Sprintf("worker-%d", i+1),
			Server:  fmt.Sprintf("0c6a2f4e-1b7d-4e7a-9a53-00000000000%d", i+1),
			Address: netip.AddrFrom4([4]byte{10, 0, 1, byte(11 + i)}),
		}
	}
	return workers
}

// public is an unused address: the Nodes' InternalIP, which is not where their backends are, as in the cloud.
func (w Worker) public() netip.Addr {
	return netip.AddrFrom4([4]byte{203, 0, 113, w.Address.As4()[3]})
}
