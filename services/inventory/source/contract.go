package source

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// Limits of rule R13 of the contract, in bytes. A client ends the stream for one node that breaks it, and
// then gets no node of the source. A test of feed compares what is sent with the contract.
const (
	maxNameLength       = 253
	maxUIDLength        = 128
	maxLabelKeyLength   = 317
	maxLabelValueLength = 63 // of zone and region, too
)

// ContractProblem is why the node cannot be sent to clients; empty: it can.
func (c Candidate) ContractProblem() string {
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
			return fmt.Sprintf("its %s %s", f.name, problem)
		}
	}
	switch {
	case c.Name == "":
		return "it has no name"
	case c.Hostname != "" && !contract.IsHostname(c.Hostname):
		return "its hostname is no DNS label"
	case c.State < Ready || c.State > NotReady:
		return fmt.Sprintf("its state is %d, want %d to %d", c.State, Ready, NotReady)
	}
	if len(c.Ports) > contract.MaxPorts || slices.ContainsFunc(c.Ports, func(p contract.Port) bool { return !p.IsValid() }) {
		return fmt.Sprintf("It has a port that is none, or more than %d. Correct it in the source.", contract.MaxPorts)
	}
	for key, value := range c.Labels {
		if textProblem(key, maxLabelKeyLength) != "" || textProblem(value, maxLabelValueLength) != "" {
			return "a label is longer than Kubernetes allows, or not UTF-8"
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

// KeepValid returns the text of someone else, or nothing if it is longer than limit bytes or not UTF-8.
func KeepValid(text string, limit int) string {
	if textProblem(text, limit) != "" {
		return ""
	}
	return text
}
