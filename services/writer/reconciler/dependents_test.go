package reconciler

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/util/workqueue"

	"github.com/slicefeed/slicefeed/services/writer/targets"
)

func TestFindsTheTargetsThatDependOnASource(t *testing.T) {
	web, api := dependency{"blue", "shop/web"}, dependency{"blue", "shop/api"}
	green := dependency{source: "green"}
	dependents := newDependents()
	for _, step := range []struct {
		name            string
		target          string
		uses            []dependency
		web, api, green string // targets that depend on them
	}{
		{"none depends on anything", "a", nil, "", "", ""},
		{"one uses a Service", "a", []dependency{web}, "a", "", ""},
		{"two use it", "b", []dependency{web, green}, "a b", "", "b"},
		{"nothing changes", "b", []dependency{web, green}, "a b", "", "b"},
		{"one uses another Service", "a", []dependency{api}, "b", "a", "b"},
		{"and another source too", "a", []dependency{api, green}, "b", "a", "a b"},
		{"one is left", "b", nil, "", "a", "a"},
		{"none is left", "a", nil, "", "", ""},
		{"one comes back", "a", []dependency{web}, "a", "", ""},
		{"and goes again", "a", nil, "", "", ""},
	} {
		dependents.set(targets.Key{Name: step.target}, step.uses)
		for on, want := range map[dependency]string{web: step.web, api: step.api, green: step.green, {source: "blue"}: ""} {
			var names []string
			for _, key := range dependents.of(on) {
				names = append(names, key.Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != want {
				t.Errorf("%s: %v has %q, want %q", step.name, on, got, want)
			}
		}
	}
	if len(dependents.targets)+len(dependents.dependencies) != 0 {
		t.Errorf("kept without any target: %v, %v", dependents.targets, dependents.dependencies)
	}
}

// signalingLease is a Lease that signals changes.
type signalingLease struct {
	fakeLease

	changed chan struct{}
}

func (l *signalingLease) Changed() <-chan struct{} { return l.changed }

// signalingFeeds are of a source that signals changes.
type signalingFeeds struct {
	silentFeeds

	changed  chan struct{}
	services []string
}

func (f signalingFeeds) Changed() <-chan struct{} { return f.changed }

func (f signalingFeeds) TakeChanged() map[string]struct{} {
	changed := map[string]struct{}{}
	for _, service := range f.services {
		changed[service] = struct{}{}
	}
	return changed
}

// keyQueue is a queue that only records what is added.
type keyQueue struct {
	workQueue

	names []string
}

func (q *keyQueue) Add(key targets.Key) { q.names = append(q.names, key.Name) }

func TestAChangeDecidesTheTargetsThatDependOnIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		services, green, lease := make(chan struct{}), make(chan struct{}), make(chan struct{})
		c := newCluster(t, &signalingLease{changed: lease})
		c.sources = map[string]Source{
			"blue":  {Name: "blue", Feeds: signalingFeeds{changed: services, services: []string{"shop/web", "shop/api"}}},
			"green": {Name: "green", Feeds: signalingFeeds{changed: green, services: []string{""}}},
		}
		for name, dependencies := range map[string][]dependency{
			"web": {{"blue", "shop/web"}}, "api": {{"blue", "shop/api"}}, "pay": {{"blue", "shop/pay"}},
			"both": {{"blue", "shop/web"}, {source: "green"}}, "rejected": nil,
		} {
			key := targets.Key{Name: name}
			c.state(key)
			c.setDependencies(key, dependencies)
		}
		decisions := &keyQueue{workQueue: workqueue.NewTypedDelayingQueue[targets.Key]()}
		c.decisions = decisions
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go c.run(ctx, decisions, workqueue.NewTypedDelayingQueue[targets.Key]())
		for _, step := range []struct {
			name    string
			changed chan struct{}
			want    []string
		}{
			{"two Services changed", services, []string{"api", "both", "web"}},
			{"a source that publishes one set changed", green, []string{"both"}},
			{"the Lease was taken", lease, []string{"api", "both", "pay", "rejected", "web"}},
		} {
			step.changed <- struct{}{}
			synctest.Wait()
			slices.Sort(decisions.names)
			if !slices.Equal(decisions.names, step.want) {
				t.Errorf("%s: decisions about %v, want %v", step.name, decisions.names, step.want)
			}
			decisions.names = nil
		}
	})
}
