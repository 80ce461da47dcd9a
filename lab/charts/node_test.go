package charts

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slicefeed/slicefeed/lab/node"
	"github.com/slicefeed/slicefeed/lab/pair"
)

// restarts has what restarts on a Node with containerd: containers, and the kubelet. The slice lists one worker.
func (s *stage) restarts(n *node.Node) {
	s.step("a writer that dies is started again by the kubelet, and writes nothing", func(s *stage) {
		slice := s.slice()
		for _, p := range s.pods(Consuming) {
			before := p.Status.ContainerStatuses[0]
			s.must(n.Kill(s.ctx(), strings.TrimPrefix(before.ContainerID, "containerd://")))
			s.until("another container of the Pod is ready", func() bool {
				for _, now := range s.pods(Consuming) {
					if now.UID == p.UID {
						return now.Status.ContainerStatuses[0].RestartCount > before.RestartCount && ready(now)
					}
				}
				return false
			})
		}
		s.unchanged(slice)
	})
	s.step("the writer writes while no kubelet runs, and another kubelet restarts nothing", func(s *stage) {
		before, slice := s.alive(Consuming), s.slice()
		s.must(n.StopKubelet())
		w := s.worker()
		s.must(w.Join(s.ctx()))
		s.slices("the new worker serves", pair.Are(pair.Ready, w.Address))
		s.must(n.StartKubelet(s.ctx()))
		s.until("the kubelet runs a command in a Pod", func() bool { // it is ready before it knows its Pods
			_, err := s.Run(s.ctx(), `kubectl --context consuming -n web exec deployment/slicefeed-writer -- /slicefeed-writer status`)
			return err == nil
		})
		if after := s.alive(Consuming); after != before {
			s.t.Errorf("Pods were restarted: %s, before: %s", after, before)
		}
		if now := s.slice(); now.UID != slice.UID {
			s.t.Error("the slice is another one")
		}
	})
}

func ready(p corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
