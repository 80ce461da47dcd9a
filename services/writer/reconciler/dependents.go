package reconciler

import (
	"maps"
	"slices"
	"sync"

	"github.com/slicefeed/slicefeed/services/writer/targets"
)

// dependency is what a decision depends on: a source, or a Service that a source exports.
type dependency struct{ source, service string }

// dependents finds the targets that depend on a source or an exported Service. Without it, each report would visit all
// targets. It is safe for concurrent use.
type dependents struct {
	mu           sync.Mutex
	dependencies map[targets.Key][]dependency
	targets      map[dependency]map[targets.Key]struct{}
}

func newDependents() *dependents {
	return &dependents{dependencies: map[targets.Key][]dependency{}, targets: map[dependency]map[targets.Key]struct{}{}}
}

// set replaces what a target depends on.
func (d *dependents) set(target targets.Key, dependencies []dependency) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.dependencies[target]
	if slices.Equal(old, dependencies) {
		return
	}
	for _, on := range old {
		delete(d.targets[on], target)
		if len(d.targets[on]) == 0 {
			delete(d.targets, on)
		}
	}
	delete(d.dependencies, target)
	if len(dependencies) > 0 {
		d.dependencies[target] = dependencies
	}
	for _, on := range dependencies {
		if d.targets[on] == nil {
			d.targets[on] = map[targets.Key]struct{}{}
		}
		d.targets[on][target] = struct{}{}
	}
}

// of returns the targets that depend on a source or an exported Service.
func (d *dependents) of(on dependency) []targets.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Keys(d.targets[on]))
}
