package kubernetes

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slicefeed/slicefeed/lab/controlplane"
	"github.com/slicefeed/slicefeed/lab/e2e"
	"github.com/slicefeed/slicefeed/lab/process"
)

// upstream returns a program of Kubernetes or CoreDNS as it is released. Its tests are not part of make test, since
// the programs take minutes to build.
func upstream(t *testing.T, program string) string {
	t.Helper()
	if os.Getenv("SLICEFEED_VERIFY") != "1" {
		t.Skipf("it needs %s, which takes minutes to build: make kubernetes builds and runs it", program)
	}
	paths, err := controlplane.BuildPrograms(t.Context(), os.Stderr, program)
	if err != nil {
		t.Fatal(err)
	}
	return paths[0]
}

// run runs a program until the test is over.
func runProgram(s *e2e.Setup, name string, command ...string) {
	s.T.Helper()
	started, err := process.Start(process.Spec{
		Name: name, Path: command[0], Args: command[1:], Log: filepath.Join(s.T.TempDir(), name+".log"),
	})
	s.Must(err)
	s.T.Cleanup(func() {
		if s.T.Failed() {
			s.T.Log(started.Tail())
		}
		if err := started.Stop(0); err != nil {
			s.T.Errorf("it ended before the test did: %v", err)
		}
	})
}

// credential returns the kubeconfig of an account in kube-system that is bound to ClusterRoles, those that Kubernetes
// itself defines for the program.
func credential(s *e2e.Setup, account string, roles ...string) string {
	s.T.Helper()
	documents := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: " + account + ", namespace: kube-system}}\n"
	for _, role := range roles {
		documents += `---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "lab:` + account + ":" + role + `"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "` + role + `"}
subjects:
- {kind: ServiceAccount, name: ` + account + `, namespace: kube-system}
`
	}
	s.Must(s.Consuming.ApplyYAML(s.Ctx(), []byte(documents)))
	kubeconfig, err := s.Consuming.ServiceAccountKubeconfig(s.Ctx(), "kube-system", account)
	s.Must(err)
	return kubeconfig
}
