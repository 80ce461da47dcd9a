package against

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/slicefeed/slicefeed/lab/bench/floor"
	"github.com/slicefeed/slicefeed/lab/figures"
	"github.com/slicefeed/slicefeed/lab/pair"
	"github.com/slicefeed/slicefeed/lab/process"
)

const (
	old          = "endpoint-updater" // its namespace and account in both clusters, and its Service
	oldUser      = "system:serviceaccount:" + old + ":" + old
	pollInterval = 5 * time.Second
)

const oldAccount = `apiVersion: v1
kind: Namespace
metadata: {name: endpoint-updater}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: endpoint-updater, namespace: endpoint-updater}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: endpoint-updater}
rules:
- {apiGroups: [""], resources: [nodes, services], verbs: [get, list]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: endpoint-updater}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: endpoint-updater}
subjects:
- {kind: ServiceAccount, name: endpoint-updater, namespace: endpoint-updater}
`

const oldService = `---
apiVersion: v1
kind: Service
metadata: {name: endpoint-updater, namespace: endpoint-updater}
spec:
  ports: [{name: http, port: 80, targetPort: 30080}]
`

// polling is the design of before: each 5 s one kubectl that reads the Nodes of one cluster, the
// cloud's servers, and one kubectl that applies the slice to the other.
func (s *scene) polling(ctx context.Context) (*contender, error) {
	if err := s.Secured.ApplyYAML(ctx, []byte(oldAccount)); err != nil {
		return nil, err
	}
	if err := s.Consuming.ApplyYAML(ctx, []byte(oldAccount+oldService)); err != nil {
		return nil, err
	}
	sight, err := floor.NewSight(ctx, s.Pair, old)
	if err != nil {
		return nil, err
	}
	controller, err := s.startPolling(ctx)
	if err != nil {
		return nil, err
	}
	if _, _, err := sight.Until(ctx, 1, allReady); err != nil {
		return nil, errors.Join(err, controller.Stop(0), fmt.Errorf("%s", controller.Tail()))
	}
	kubectl, stopSampling := sample(controller.PID())
	node := s.herd.Nodes()[0]
	return &contender{
		name: "polling controller, kubectl each 5 s", users: []string{oldUser},
		set: node.SetReady, address: node.Address, sight: sight, ready: true,
		// Else each change would come just after a poll, and wait longest.
		pause: func() time.Duration { return rand.N(pollInterval) },
		usage: func() (figures.Usage, error) {
			usage, err := figures.UsageOfGroup(controller.PID())
			usage.Resident = kubectl.Load()
			return usage, err
		},
		stop: func() error {
			stopSampling()
			sight.Close()
			return controller.Stop(grace)
		},
	}, nil
}

func (s *scene) startPolling(ctx context.Context) (*process.Process, error) {
	secured, err := s.Secured.ServiceAccountKubeconfig(ctx, old, old)
	if err != nil {
		return nil, err
	}
	consuming, err := s.Consuming.ServiceAccountKubeconfig(ctx, old, old)
	if err != nil {
		return nil, err
	}
	env := fmt.Sprintf(`SECURED_KUBECONFIG=%s
SECURED_KUBECTL_CONTEXT=%s
IONOS_TOKEN=%s
IONOS_API_URL=%s
IONOS_DATACENTER_ID=%s
IONOS_PRIVATE_LAN_ID=%d
SECURED_SUBNET_PREFIX=10.1.
SOURCE_POLL_INTERVAL=%s
TARGET_KUBECONFIG=%s
TARGET_NAMESPACE=%s
TARGET_SERVICE_NAME=%s
TARGET_ENDPOINTSLICE_NAME=%s
TARGET_MANAGED_BY=%s
TARGET_PORT=%d
HEALTH_CHECK_MODE=off
EMPTY_RESULT_THRESHOLD=3
`, secured, s.Secured.Name(), s.Cloud.Token, s.Cloud.URL, pair.Datacenter, pair.PrivateLAN, pollInterval, consuming, old, old, old, old, pair.NodePort)
	file := filepath.Join(s.dir, "controller.env")
	if err := os.WriteFile(file, []byte(env), 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return process.Start(process.Spec{
		Name: "the polling controller", Path: self, Args: []string{"polling", file, "--kubectl", s.kubectl, "--cloud-ca", s.Cloud.CAFile},
		// kubectl keeps what it has learnt of the API below its home, as it would in a container.
		Env: []string{"HOME=" + s.dir}, Dir: s.dir, Log: filepath.Join(s.dir, "polling.log"),
	})
}

// sample watches how much memory the processes have that a process starts: they come and go,
// and it is about those. What stands in for the script around them is not counted.
func sample(leader int) (most *atomic.Int64, stop func()) {
	most, over, done := &atomic.Int64{}, make(chan struct{}), make(chan struct{})
	go func() { // stop waits for it
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			all, err := figures.UsageOfGroup(leader)
			if err != nil {
				continue // the next one will do
			}
			if alone, err := figures.UsageOf(leader); err == nil {
				most.Store(max(most.Load(), all.Resident-alone.Resident))
			}
		}
	}()
	return most, func() {
		close(over)
		<-done
	}
}
