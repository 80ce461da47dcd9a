package applier

import (
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/utils/ptr"
)

func TestBacksOffRepairsAndNamesTheEditor(t *testing.T) {
	empty := func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }
	for name, c := range map[string]struct {
		hand  func(*api)
		named string
	}{
		"who edits a slice":   {func(a *api) { a.edit("shop-nodes", empty) }, `"kubectl-edit"`},
		"who deletes a slice": {func(a *api) { a.edit("shop-nodes", nil) }, "a client that deleted it"},
		// As by kubectl delete --cascade=foreground: it is there until the garbage collector has seen it, so
		// that the slice in its place has another name.
		"who deletes a slice in the foreground": {func(a *api) {
			list, _ := a.cache()
			for _, slice := range list {
				if slice.DeletionTimestamp != nil {
					a.edit(slice.Name, nil)
					continue
				}
				a.edit(slice.Name, func(s *discoveryv1.EndpointSlice) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
			}
		}, "a client that deleted it"},
		"who adds a slice with our labels": {func(a *api) {
			a.edit("shop-nodes-more", func(s *discoveryv1.EndpointSlice) {
				s.Labels, s.Endpoints = a.slices["shop-nodes"].Labels, []discoveryv1.Endpoint{endpoint("10.0.0.66")}
			})
		}, `"kubectl-edit"`},
		"who adds an empty slice with our labels": {func(a *api) {
			a.edit("shop-nodes-more", func(s *discoveryv1.EndpointSlice) { s.Labels = a.slices["shop-nodes"].Labels })
		}, `"kubectl-edit"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWriter(t)
				w.must(t, desired("10.0.0.1"))
				began, repaired := time.Now(), 0
				for repaired < 100 && time.Since(began) < 10*time.Minute {
					c.hand(w.api)
					for {
						err := w.apply(t, desired("10.0.0.1"))
						later := (*RetryLaterError)(nil)
						if err == nil {
							repaired++
							break
						}
						if !errors.As(err, &later) {
							t.Fatal(err)
						}
						if !strings.Contains(err.Error(), c.named) || !later.Repair {
							t.Fatalf("names nobody, or holds up everything: %v", err)
						}
						time.Sleep(time.Until(later.At))
					}
				}
				if n := len(
					w.delayed,
				); n < 10 || n > 20 || w.repaired < repaired || !strings.Contains(w.delayed[0].Editor, c.named) ||
					w.delayed[0].Budget != immediateRepairs {
					t.Errorf("reported %d repairs, %d delays: %+v", w.repaired, n, w.delayed)
				}
				if repaired < 15 || repaired > 25 { // five, then after 1 s, 2 s, … 32 s, then one a minute
					t.Errorf("%d repairs in 10 min", repaired)
				}

				c.hand(w.api)
				if err := w.apply(t, desired("10.0.0.1")); err == nil {
					t.Error("a repair should wait by now")
				}
				if err := w.apply(t, desired("10.0.0.2")); err != nil {
					t.Errorf("a change of our own should not wait: %v", err)
				}
			})
		})
	}
}

func TestOwnLabelChangeIsNoRepair(t *testing.T) {
	w := newWriter(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		d := desired("10.0.0.1")
		d.InstanceLabels = instance(name)
		w.must(t, d)
	}
}

func TestOwnChangeIncludesDelayedRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		d := desired("10.0.0.1", "10.0.0.2")
		d.MaxPerSlice = 1
		w.must(t, d)
		for range immediateRepairs {
			w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
			w.must(t, d)
		}
		w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
		if later := (*RetryLaterError)(nil); !errors.As(w.apply(t, d), &later) {
			t.Fatal("a repair should wait by now")
		}
		d.Endpoints[1].Ready = false
		w.must(t, d)
		list, _ := w.api.cache()
		if got := listed(list); got != "10.0.0.1 10.0.0.2" {
			t.Errorf("left as %q", got)
		}
	})
}

// Found by a simulated world: the Lease was deleted by hand, and the old leader took what the new one wrote for
// edits, and put them right six times in a tenth of a second.
func TestConfirmsLeaseBeforeChangingForeignWrites(t *testing.T) {
	for name, edit := range map[string]func(*discoveryv1.EndpointSlice){
		"a slice that it emptied":  func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil },
		"a slice that it added to": func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, endpoint("10.0.0.3")) },
		"a slice that it deleted":  nil,
	} {
		for _, change := range []string{"10.0.0.1", "10.0.0.2"} {
			t.Run(name+", to list "+change, func(t *testing.T) {
				w := newWriter(t)
				w.must(t, desired("10.0.0.1"))
				w.api.sent()
				w.api.edit("shop-nodes", edit)
				w.whose = ErrNotLeader
				if err := w.apply(t, desired(change)); !errors.Is(err, ErrNotLeader) {
					t.Errorf("got %v", err)
				}
				w.wantSent(t)
				w.whose = nil
				w.must(t, desired(change))
				if now, _ := w.api.cache(); listed(now) != change || w.asked != 2 {
					t.Errorf("left as %q, and asked %d times whose the Lease is", listed(now), w.asked)
				}
			})
		}
	}
}

func TestConfirmsLeaseBeforeDeletingForeignSlice(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1"))
	w.api.sent()
	ours, _ := w.api.cache()
	w.api.edit("shop-nodes-more", func(s *discoveryv1.EndpointSlice) { s.Labels = ours[0].Labels })
	w.whose = ErrNotLeader
	if err := w.apply(t, desired("10.0.0.1")); !errors.Is(err, ErrNotLeader) {
		t.Errorf("got %v", err)
	}
	w.wantSent(t)
}

func TestSkipsLeaseConfirmationWithoutCompetingWrites(t *testing.T) {
	w := newWriter(t)
	for _, address := range []string{"10.0.0.1", "10.0.0.1", "10.0.0.2"} {
		w.must(t, desired(address))
	}
	w.StartTerm()
	w.must(t, desired("10.0.0.3"))
	w.api.setFault(true, cut)
	if w.apply(t, desired("10.0.0.4")) == nil {
		t.Fatal("a write whose answer is lost ends well")
	}
	w.api.setFault(false, nil)
	if stale := (*StaleError)(nil); !errors.As(w.apply(t, desired("10.0.0.4")), &stale) {
		t.Fatal("it is not looked up")
	}
	w.must(t, desired("10.0.0.5"))
	if w.asked != 0 {
		t.Errorf("asked %d times", w.asked)
	}
}

func TestRepairBudgetIsFullAgainAfterPause(t *testing.T) {
	b, now := repairBudget{}, time.Unix(1000, 0)
	for range immediateRepairs {
		if at := b.next(now); !at.Equal(now) {
			t.Fatalf("waits until %s", at)
		}
		b.spend(now)
	}
	if at := b.next(now); !at.Equal(now.Add(time.Second)) {
		t.Errorf("the sixth may be made at %s", at)
	}
	now = now.Add(time.Second)
	b.spend(now)
	if at := b.next(now); !at.Equal(now.Add(2 * time.Second)) {
		t.Errorf("the seventh may be made at %s", at)
	}
	now = now.Add(repairReset)
	if at := b.next(now); !at.Equal(now) || b.delayed != 0 {
		t.Errorf("after a calm at %s", at)
	}
}

// Found with a MutatingAdmissionPolicy: its label was repaired once a minute without end, and another writer was blamed.
func TestWhatAdmissionChangesIsNotRepaired(t *testing.T) {
	for name, admit := range map[string]func(*discoveryv1.EndpointSlice){
		"a label that it adds":            func(s *discoveryv1.EndpointSlice) { s.Labels["example.com/cost-center"] = "c42" },
		"a label that it removes":         func(s *discoveryv1.EndpointSlice) { delete(s.Labels, labelGroup) },
		"the name of the Service":         func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelServiceName) },
		"the label of the owner":          func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "another" },
		"a label that always has another": func(s *discoveryv1.EndpointSlice) { s.Labels["example.com/version"] = s.ResourceVersion },
		"an endpoint that it removes":     func(s *discoveryv1.EndpointSlice) { s.Endpoints = s.Endpoints[1:] },
		"an endpoint that it adds":        func(s *discoveryv1.EndpointSlice) { s.Endpoints = append(s.Endpoints, endpoint("10.9.9.9")) },
		"a field of an endpoint":          func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Zone = ptr.To("zone-1") },
		"an owner":                        func(s *discoveryv1.EndpointSlice) { s.OwnerReferences = nil },
		"the time of the last change": func(s *discoveryv1.EndpointSlice) {
			s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-11-28T14:00:00Z"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWriter(t)
			w.api.admit = admit
			for range 3 {
				w.must(t, desired("10.0.0.1", "10.0.0.2"))
			}
			w.wantSent(t, "POST endpointslices")
			if got := w.Admitted(); len(got) != 1 || got[0].Sent.Name != "shop-nodes" || w.repaired != 0 || w.asked != 0 {
				t.Errorf("admission changed %d slices; %d repairs, %d times confirmed", len(got), w.repaired, w.asked)
			}
			if got := listed(w.LastApplied(shop, w.Observed(w.api.cache()))); got != "10.0.0.1 10.0.0.2" {
				t.Errorf("held %q", got)
			}

			for range 3 {
				w.must(t, desired("10.0.0.1", "10.0.0.3"))
			}
			w.wantSent(t, "PUT shop-nodes")

			w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil })
			for range 3 {
				w.must(t, desired("10.0.0.1", "10.0.0.3"))
			}
			w.wantSent(t, "PUT shop-nodes")
			if w.repaired != 1 {
				t.Errorf("%d repairs of another client's edit", w.repaired)
			}

			w.api.admit = nil
			w.must(t, desired("10.0.0.1"))
			if got := w.Admitted(); len(got) != 0 {
				t.Errorf("admission is over, and %d slices count as changed", len(got))
			}
		})
	}
}

func TestASliceThatAdmissionChangedIsWithdrawn(t *testing.T) {
	w := newWriter(t)
	w.api.admit = func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelManagedBy] = "another" }
	w.must(t, desired("10.0.0.1"))
	current := w.Observed(w.api.cache())
	if _, err := w.Apply(t.Context(), Order{Service: shop, Desired: desired(), Current: current, Withdraw: true}); err != nil {
		t.Fatal(err)
	}
	w.wantSent(t, "POST endpointslices", "DELETE shop-nodes")
}

func TestSliceThatWaitsForAFinalizerIsReplacedAndEmptied(t *testing.T) {
	w := newWriter(t)
	w.must(t, desired("10.0.0.1", "10.0.0.2"))
	w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
	w.api.sent()

	forbidden := answers(http.StatusForbidden, nil)
	w.api.setFault(false, func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost {
			return forbidden(r)
		}
		return nil, nil
	})
	if err := w.apply(t, desired("10.0.0.1")); err == nil {
		t.Error("what replaces it was rejected")
	}
	w.wantSent(t, "POST endpointslices")

	w.api.setFault(false, nil)
	for range 3 {
		w.must(t, desired("10.0.0.1"))
	}
	w.wantSent(t, "POST endpointslices", "PUT shop-nodes")
	if n := len(w.api.slices["shop-nodes"].Endpoints); n != 0 {
		t.Errorf("it still lists %d endpoints", n)
	}

	w.api.edit("shop-nodes", nil)
	asked := w.asked
	w.must(t, desired("10.0.0.3"))
	w.wantSent(t, "PUT shop-nodes-2")
	if w.asked != asked {
		t.Error("that it is gone counts as another client's change")
	}
}

func TestOnlyOurAnnotationsAreRepaired(t *testing.T) {
	w := newWriter(t)
	d := desired("10.0.0.1")
	d.Annotations = map[string]string{"example.com/note": "ours"}
	w.must(t, d)
	for _, c := range []struct {
		key      string
		repaired int
	}{{"example.com/theirs", 0}, {"example.com/note", 1}} {
		w.api.edit("shop-nodes", func(s *discoveryv1.EndpointSlice) { s.Annotations[c.key] = "theirs" })
		w.must(t, d)
		if w.repaired != c.repaired {
			t.Errorf("after an edit of %s: %d repairs", c.key, w.repaired)
		}
	}
	want := map[string]string{"example.com/note": "ours", "example.com/theirs": "theirs"}
	if got := w.api.slices["shop-nodes"].Annotations; !maps.Equal(got, want) {
		t.Errorf("annotations: %v", got)
	}
}

// A function that changes slices makes no difference that would be repaired, not even by the next leader.
func TestChangedSlicesAreWrittenOnce(t *testing.T) {
	w := newWriter(t)
	d := desired("10.0.0.1")
	d.Mutate = func(s *discoveryv1.EndpointSlice) {
		s.Labels["example.com/team"], s.Endpoints[0].Zone = "a", ptr.To("zone-1")
	}
	for _, what := range []string{"at first", "again", "in another term"} {
		w.must(t, d)
		if n := len(w.wrote); n != 1 {
			t.Errorf("%s: %d writes in all", what, n)
		}
		if what == "again" {
			w.StartTerm()
		}
	}
}
