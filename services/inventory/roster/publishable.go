package roster

import (
	"fmt"
	"net/netip"
	"unicode/utf8"
)

// What follows keeps from clients what rule R13 of the contract forbids, whatever a source or the
// cloud reports: a client ends the stream for one such node, and gets none of the source. The limits
// are those of the contract, in bytes; a test of nodeserver holds what is sent against it.
const (
	maxNameLength       = 253
	maxUIDLength        = 128
	maxLabelKeyLength   = 317
	maxLabelValueLength = 63 // of zone and region, too, and of a port's name
)

// contractProblem says why a node with this data cannot be sent to clients; empty: it can.
func contractProblem(c Candidate) string {
	for _, f := range []struct {
		name, value string
		limit       int
	}{
		{"name", c.Name, maxNameLength},
		{"UID", c.UID, maxUIDLength},
		{"zone", c.Zone, maxLabelValueLength},
		{"region", c.Region, maxLabelValueLength},
	} {
		if problem := textProblem(f.value, f.limit); problem != "" {
			return fmt.Sprintf("Its %s %s. Correct it in the source.", f.name, problem)
		}
	}
	switch {
	case c.Name == "":
		return "It has no name. Correct it in the source."
	case c.State < Ready || c.State > NotReady:
		return fmt.Sprintf("Its state is %d, want %d to %d.", c.State, Ready, NotReady)
	}
	for key, value := range c.Labels {
		if textProblem(key, maxLabelKeyLength) != "" || textProblem(value, maxLabelValueLength) != "" {
			return "A label is longer than Kubernetes allows, or not UTF-8. Correct it in the source."
		}
	}
	return ""
}

func textProblem(text string, limit int) string {
	switch {
	case len(text) > limit:
		return fmt.Sprintf("has %d bytes; the limit is %d", len(text), limit)
	case !utf8.ValidString(text):
		return "is not UTF-8"
	}
	return ""
}

// reachable reports whether a node can have the address: not the unspecified one, nor one that is
// meant for the machine itself, its link or a group.
func reachable(a netip.Addr) bool { return a.IsGlobalUnicast() }

// publishablePorts leaves out the ports that clients would refuse.
func publishablePorts(all []Port) (ports []Port) {
	for _, p := range all {
		known := p.Protocol == "TCP" || p.Protocol == "UDP" || p.Protocol == "SCTP"
		if known && p.Number > 0 && textProblem(p.Name, maxLabelValueLength) == "" {
			ports = append(ports, p)
		}
	}
	return ports
}
