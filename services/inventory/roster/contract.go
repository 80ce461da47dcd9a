package roster

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

// ContractProblem is why the node cannot be sent to clients; empty: it can. A client ends the stream for one node that
// breaks a limit of rule R13, and then gets no node of the source. A test of feed compares what is sent with the
// contract.
func (c Node) ContractProblem() string {
	for _, f := range []struct {
		name, value string
		limit       int
	}{
		{"name", c.Name, contract.MaxNameLength},
		{"UID", c.UID, contract.MaxUIDLength},
		{"zone", c.Zone, contract.MaxLabelValueLength},
		{"region", c.Region, contract.MaxLabelValueLength},
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
		if textProblem(key, contract.MaxLabelKeyLength) != "" || textProblem(value, contract.MaxLabelValueLength) != "" {
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
