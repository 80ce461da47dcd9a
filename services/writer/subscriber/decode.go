package subscriber

import (
	"maps"
	"net/netip"
	"strings"
	"time"

	inventoryv1 "github.com/slicefeed/slicefeed/gen/slicefeed/inventory/v1"
	"github.com/slicefeed/slicefeed/services/internal/contract"
	"github.com/slicefeed/slicefeed/services/writer/verdict"
	"google.golang.org/protobuf/types/known/durationpb"
)

// decodeNode checks one upsert and converts it.
func decodeNode(received time.Time, n *inventoryv1.Node) (*reportedNode, *Violation) {
	name := n.GetName()
	if name == "" || len(name) > contract.MaxNameLength {
		return nil, violationf(InvalidName, "node name of %d bytes: want 1 to %d", len(name), contract.MaxNameLength)
	}
	if l := len(n.GetFingerprint()); l != contract.DigestSize {
		return nil, violationf(InvalidFingerprint, "node %q: fingerprint of %d bytes: want %d", name, l, contract.DigestSize)
	}
	addresses, v := decodeAddresses(name, n.GetAddresses())
	if v != nil {
		return nil, v
	}
	if len(n.GetUid()) > contract.MaxUIDLength || len(n.GetZone()) > contract.MaxLabelValueLength ||
		len(n.GetRegion()) > contract.MaxLabelValueLength || len(n.GetLabels()) > contract.MaxLabels {
		return nil, violationf(LimitExceeded, "node %q: UID, zone or region too long, or too many labels", name)
	}
	if hostname := n.GetHostname(); hostname != "" && !contract.IsHostname(hostname) {
		return nil, violationf(InvalidName, "node %q: hostname %.64q: want a DNS label", name, hostname)
	}
	for key, value := range n.GetLabels() {
		if len(key) > contract.MaxLabelKeyLength || len(value) > contract.MaxLabelValueLength {
			return nil, violationf(LimitExceeded, "node %q: label too long", name)
		}
	}
	ports, v := decodePorts(name, n.GetPorts())
	if v != nil {
		return nil, v
	}
	node := &reportedNode{fingerprint: contract.Digest(n.GetFingerprint()), memoryCost: memoryCost(n)}
	member := verdict.Member{
		Name: name, State: n.GetState(), Since: received.Add(-clampAge(n.GetStateAge())), Zone: n.GetZone(), Hostname: n.GetHostname(),
		Labels: maps.Clone(n.GetLabels()), Serves: ports,
	}
	if _, known := inventoryv1.NodeState_name[int32(member.State)]; !known { // rule R12
		member.State = verdict.Unknown
	}
	for _, member.Address = range addresses {
		node.members = append(node.members, new(member))
	}
	return node, nil
}

func decodeAddresses(name string, texts []string) ([]netip.Addr, *Violation) {
	if len(texts) == 0 || len(texts) > 2 {
		return nil, violationf(InvalidAddress, "node %q: %d addresses: want one or two", name, len(texts))
	}
	addresses := make([]netip.Addr, 0, len(texts))
	for _, text := range texts {
		// Only the canonical form: two spellings of one address would count as two addresses.
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.String() != text {
			return nil, violationf(InvalidAddress, "node %q: %.64q: want an address in canonical form", name, text)
		}
		addresses = append(addresses, a)
	}
	if len(addresses) == 2 && addresses[0].Is4() == addresses[1].Is4() {
		return nil, violationf(InvalidAddress, "node %q: two addresses of the same family", name)
	}
	return addresses, nil
}

// ageTolerance is by how much two messages may differ about the time of one change: each states an age, and
// the time that it takes to arrive varies.
const ageTolerance = 2 * time.Second

// decodePartStatus converts the status of a part. While the state does not change, Since keeps its
// first value, so that the delay of later messages does not move it.
func decodePartStatus(received time.Time, p *inventoryv1.PartStatus, before PartStatus) PartStatus {
	part := PartStatus{State: p.GetState(), Since: received.Add(-clampAge(p.GetAge()))}
	if _, known := inventoryv1.SyncState_name[int32(part.State)]; !known || part.State == 0 { // rule R12
		part.State = Degraded
	}
	if part.State != Synced {
		part.Reason = p.GetReason()
		if len(part.Reason) > contract.MaxTextLength {
			part.Reason = strings.ToValidUTF8(part.Reason[:contract.MaxTextLength], "")
		}
	}
	if part.State == before.State && !before.Since.IsZero() && part.Since.Sub(before.Since).Abs() < ageTolerance {
		part.Since = before.Since
	}
	return part
}

func decodePorts(name string, all []*inventoryv1.SourcePort) ([]contract.Port, *Violation) {
	if len(all) > contract.MaxPorts {
		return nil, violationf(LimitExceeded, "node %q: %d ports: want at most %d", name, len(all), contract.MaxPorts)
	}
	var ports []contract.Port
	for _, p := range all {
		if n := p.GetPort(); n < 1 || n > 65535 || len(p.GetName()) > contract.MaxLabelValueLength ||
			len(p.GetProtocol()) > contract.MaxLabelValueLength {
			return nil, violationf(LimitExceeded, "node %q: port %d: out of range, or name or protocol too long", name, n)
		}
		ports = append(ports, contract.Port{Name: p.GetName(), Protocol: p.GetProtocol(), Number: uint16(p.GetPort())})
	}
	return ports, nil
}

// clampAge limits a duration from a peer to a possible age.
func clampAge(d *durationpb.Duration) time.Duration {
	const maxAge = 50 * 365 * 24 * time.Hour
	return min(max(d.AsDuration(), 0), maxAge)
}
