package charts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What helm says after an installation is run as it stands, and leads to Pods that are well.
func TestTheNotesLeadToAHalfThatRuns(t *testing.T) {
	s := enter(t)
	const there = "noted" // a namespace and a release of its own: nothing of another test is in its way
	lab, _ := s.forLab()
	s.must(os.WriteFile(filepath.Join(s.Dir(), "token"), []byte(s.Cloud.Token+"\n"), 0o600))
	s.run(`deploy/certificates.sh all "$DIR/noted" >/dev/null`)
	worker := s.worker()
	s.must(worker.Join(s.ctx()))
	for _, half := range []struct{ side, prepare, flags, want, unwell string }{
		{
			Secured, `kubectl --context secured -n noted create configmap ionos-ca --from-file=ca.crt=` + s.Cloud.CAFile, "slicefeed-inventory" + lab,
			"create secret tls, create configmap, create secret generic, rollout restart, rollout status, logs deployment/noted, preflight, status", "status",
		},
		{
			Consuming, `kubectl --context consuming -n noted create service clusterip shop --clusterip=None`, "slicefeed-writer",
			"create secret tls, create configmap, rollout restart, rollout status, logs deployment/noted, preflight, status, label service", "preflight, status",
		},
	} {
		s.step(half.side, func(s *stage) {
			s.run("kubectl --context " + half.side + " create namespace " + there + "\n" + half.prepare)
			chart, flags, _ := strings.Cut(half.flags, " ")
			notes := s.run(
				fmt.Sprintf(
					"helm --kube-context %s install %s deploy/%s -n %[2]s -f deploy/%[3]s/examples/minimal.yaml %s",
					half.side,
					there,
					chart,
					flags,
				),
			)
			commands := s.commands(notes, half.side)
			wanted := strings.Split(half.want, ", ")
			if len(commands) != len(wanted) {
				s.t.Fatalf("%d commands, want %d:\n%s", len(commands), len(wanted), notes)
			}
			for i, command := range commands {
				if !strings.Contains(command, wanted[i]) {
					s.t.Errorf("command %d is %q, want %q", i+1, command, wanted[i])
				}
				out, err := s.Run(s.ctx(), command)
				if !strings.HasSuffix(out, "exit code 1\n") || !strings.Contains(half.unwell, wanted[i]) { // its verdict on a half alone
					s.must(err)
				}
				s.t.Logf("%s\n%s", command, out)
			}
		})
	}
	s.must(worker.Leave(s.ctx()))
	for _, side := range []string{Secured, Consuming} {
		s.run(
			fmt.Sprintf(
				"helm --kube-context %s uninstall %s -n %[2]s --wait; kubectl --context %[1]s delete namespace %[2]s --wait=false",
				side,
				there,
			),
		)
	}
}

// commands are those that notes give, with what a person fills in.
func (s *stage) commands(notes, side string) (all []string) {
	for line := range strings.Lines(notes) {
		if command, ok := strings.CutPrefix(line, "  kubectl "); ok {
			all = append(
				all,
				strings.NewReplacer("DIR/", s.Dir()+"/noted/", "=FILE", "="+s.Dir()+"/token", "NAMESPACE", "noted", "NAME", "shop").
					Replace("kubectl --context "+side+" "+strings.TrimSpace(command)),
			)
		}
	}
	return all
}
