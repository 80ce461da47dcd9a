package pair

import (
	"fmt"
	"net/netip"
)

// AddReplica prepares a further process of the pair's own inventory at another address: the
// same certificates, settings and sources, and an epoch of its own.
func (p *Pair) AddReplica(name string, address netip.Addr) (*Component, error) {
	first := p.Inventory
	replica, err := p.newFurther(address, name, first.program, first.settings(), map[string]string{
		"LISTEN_ADDRESS": port(address, LinkPort),
	})
	if err != nil {
		return nil, fmt.Errorf("prepare replica %s of the inventory: %w", name, err)
	}
	return replica, nil
}
