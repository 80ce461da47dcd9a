package faults

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slicefeed/slicefeed/lab/backend"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// Source is one of the scene's sources, as the writers name it.
type Source string

// The sources, and how many members each has in an undisturbed scene.
const (
	Default Source = "default" // the secured cluster
	Second  Source = "second"  // records in a file

	defaultMembers = 4
	secondMembers  = 2
)

// Member is a worker, and what is true of it.
type Member struct {
	*pair.Worker

	source             Source
	dead, drains, gone bool
}

// is what the slices have to say of it when nothing is in the way.
func (m *Member) is() pair.Condition {
	switch {
	case m.gone:
		return pair.Absent
	case m.dead:
		return pair.Out
	case m.drains:
		return pair.Draining
	default:
		return pair.Ready
	}
}

// Members returns those of a source that have not left.
func (s *Scene) Members(of Source) []*Member {
	var all []*Member
	for _, m := range s.members {
		if m.source == of && !m.gone {
			all = append(all, m)
		}
	}
	return all
}

func (s *Scene) count(of Source) int { return len(s.Members(of)) }

// Truth tells whether slices say of all members what is true, and nothing else.
func (s *Scene) Truth() func([]*discoveryv1.EndpointSlice) bool {
	want := map[netip.Addr]pair.Condition{}
	for _, m := range s.members {
		if is := m.is(); is != pair.Absent {
			want[m.Address] = is
		}
	}
	return func(all []*discoveryv1.EndpointSlice) bool {
		found := pair.Conditions(all)
		if len(found) != len(want) {
			return false
		}
		for address, is := range want {
			if found[address] != is {
				return false
			}
		}
		return true
	}
}

// WaitTruth waits until the slices tell the truth, and returns how long after start they first did.
func (s *Scene) WaitTruth(ctx context.Context, start time.Time) (time.Duration, error) {
	took, err := s.WaitSlicesSince(ctx, start, s.Truth())
	if err != nil {
		return 0, fmt.Errorf("the truth is %s: %w", s.describe(), err)
	}
	return took, nil
}

func (s *Scene) describe() string {
	var lines []string
	for _, m := range s.members {
		if is := m.is(); is != pair.Absent {
			lines = append(lines, m.Address.String()+" "+string(is))
		}
	}
	return strings.Join(lines, ", ")
}

// Hire makes a machine that answers. It is no member of the cluster before it joins.
func (s *Scene) Hire(source Source) (*Member, error) {
	s.last[source]++
	third := map[Source]byte{Default: 0, Second: 1}[source]
	address := netip.AddrFrom4([4]byte{10, third, 1, byte(10 + s.last[source])})
	worker, err := s.AddWorker(pair.WorkerOptions{Name: fmt.Sprintf("%s-%d", source, s.last[source]), Address: address})
	if err != nil {
		return nil, err
	}
	s.probes[address], err = newEdge("probes of "+worker.Name, netip.AddrPortFrom(address, probedPort), netip.AddrPortFrom(address, pair.NodePort))
	if err != nil {
		return nil, errors.Join(err, worker.Destroy())
	}
	return &Member{Worker: worker, source: source}, nil
}

// Join makes a machine a member.
func (s *Scene) Join(ctx context.Context, m *Member) error {
	s.members = append(s.members, m)
	if m.source == Second {
		return s.tellSecond()
	}
	return m.Join(ctx)
}

// Leave deletes the Node. The machine goes on.
func (s *Scene) Leave(ctx context.Context, m *Member) error {
	m.gone = true
	if m.source == Second {
		return s.tellSecond()
	}
	return m.Leave(ctx)
}

// Die kills the backend, and then the Node is not ready.
func (s *Scene) Die(ctx context.Context, m *Member) error {
	m.dead = true
	if err := m.Set(backend.Refuse); err != nil {
		return err
	}
	if m.source == Second {
		return s.tellSecond()
	}
	return m.SetReady(ctx, false)
}

// Drain has the autoscaler drain the Node, or the operator take that back.
func (s *Scene) Drain(ctx context.Context, m *Member, on bool) error {
	m.drains = on
	return m.Drain(ctx, on)
}

func (s *Scene) tellSecond() error {
	records := []pair.Record{}
	for _, m := range s.Members(Second) {
		records = append(records, pair.Record{Name: m.Name, Address: m.Address, Ready: !m.dead, Worker: true})
	}
	return s.Second.TellRecords(records...)
}

// retire takes the machine away. Its owner knows that it has left the cluster; the slices may not.
func (s *Scene) retire(m *Member) error {
	if err := m.Set(backend.Refuse); err != nil { // it may be listed, so somebody has to find out
		return err
	}
	s.probes[m.Address].down()
	delete(s.probes, m.Address)
	return m.Destroy()
}

// crew makes the members those of an undisturbed scene again.
func (s *Scene) crew(ctx context.Context) error {
	for _, m := range s.members {
		if m.gone {
			continue
		}
		if err := s.heal(ctx, m); err != nil {
			return err
		}
	}
	for source, want := range map[Source]int{Default: defaultMembers, Second: secondMembers} {
		for n := s.count(source); n < want; n++ {
			m, err := s.Hire(source)
			if err != nil {
				return err
			}
			if err := s.Join(ctx, m); err != nil {
				return err
			}
		}
		// The newest go: an old one has been proved to serve.
		for s.count(source) > want {
			all := s.Members(source)
			if err := s.Leave(ctx, all[len(all)-1]); err != nil {
				return err
			}
		}
	}
	for _, m := range s.members {
		if _, there := s.probes[m.Address]; !m.gone || !there {
			continue
		}
		_, err := s.WaitSlices(ctx, pair.Are(pair.Absent, m.Address))
		if err == nil && s.probes[m.Address] != nil {
			err = s.retire(m)
		}
		if err != nil {
			return err
		}
	}
	s.members = slices.DeleteFunc(s.members, func(m *Member) bool { return m.gone })
	return nil
}

// heal undoes what the last row did to a member.
func (s *Scene) heal(ctx context.Context, m *Member) error {
	if m.Backend().Mode() != backend.Serve {
		if err := m.Set(backend.Serve); err != nil {
			return err
		}
	}
	dead := m.dead
	m.dead = false
	if m.source == Second {
		return s.tellSecond()
	}
	if dead {
		if err := m.SetReady(ctx, true); err != nil {
			return err
		}
	}
	if m.drains {
		return s.Drain(ctx, m, false)
	}
	return nil
}
