package roster

import (
	"strings"
	"testing"

	"github.com/slicefeed/slicefeed/services/internal/contract"
)

func TestANodeWithAPortThatTheContractForbidsIsOmitted(t *testing.T) {
	for port, want := range map[contract.Port]bool{
		{Name: "web", Protocol: "TCP", Number: 80}:                   true,
		{Protocol: "TCP"}:                                            false,
		{Protocol: "tcp", Number: 80}:                                false,
		{Name: strings.Repeat("x", 64), Protocol: "UDP", Number: 53}: false,
		{Name: "\xff", Protocol: "UDP", Number: 53}:                  false,
		{Protocol: "SCTP", Number: 1}:                                true,
	} {
		c := Node{Name: "a", State: Ready, Ports: []contract.Port{port}}
		if problem := c.ContractProblem(); (problem == "") != want {
			t.Errorf("port %v: %q", port, problem)
		}
	}
}
