package source

import (
	"strings"
	"testing"
)

func TestPortsThatTheContractForbidsAreLeftOut(t *testing.T) {
	got := PublishablePorts([]Port{
		{Name: "web", Protocol: "TCP", Number: 80},
		{Protocol: "TCP"},
		{Protocol: "tcp", Number: 80},
		{Name: strings.Repeat("x", 64), Protocol: "UDP", Number: 53},
		{Name: "\xff", Protocol: "UDP", Number: 53},
		{Protocol: "SCTP", Number: 1},
	})
	if len(got) != 2 || got[0].Name != "web" || got[1].Protocol != "SCTP" {
		t.Errorf("got %v", got)
	}
}
