package link

import (
	"testing"
	"time"
)

// The test compares the settings of both ends, because a real violation takes minutes.
func TestClientPingsWithinServerLimit(t *testing.T) {
	client := clientKeepalive()
	server, allowed := serverKeepalive()
	if client.Time < 2*allowed.MinTime {
		t.Errorf("pings every %v, with %v allowed: which leaves no margin for timers", client.Time, allowed.MinTime)
	}
	if client.PermitWithoutStream && !allowed.PermitWithoutStream {
		t.Error("the client pings without a stream, which the server forbids")
	}
	const floor = 10 * time.Second // grpc's minimum for clients
	if client.Time < floor {
		t.Errorf("the interval %v is not what grpc would use", client.Time)
	}
	if client.Timeout >= client.Time || server.Timeout >= server.Time {
		t.Error("a ping outlasts the interval")
	}
	if server.MaxConnectionAge == 0 || server.MaxConnectionAgeGrace == 0 {
		t.Error("a connection, or its end, has no time limit")
	}
	if maxResponseBytes <= maxMessageBytes || maxRequestBytes >= maxMessageBytes {
		t.Error("the message limits of the two ends conflict")
	}
	if connectTimeout > 4*time.Second {
		t.Error("connecting to a host that is down continues for over a second after the third SYN (rule R14)")
	}
}
