package charts

import (
	"regexp"
	"strings"
	"testing"
)

const foreignSlice = `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: stolen
  namespace: named
  labels: {endpointslice.kubernetes.io/managed-by: slicefeed-default, kubernetes.io/service-name: shop}
addressType: IPv4
endpoints: [{addresses: [192.0.2.1]}]
ports: [{port: 30080, protocol: TCP}]
`

// TestOtherNamesAccountsAndUsersAreFollowed installs both charts under names and accounts that are not the release's,
// into namespaces that enforce the restricted Pod Security Standard, with a user ID as OpenShift assigns it, and with
// that of the image. Roles and policies are those of the other account: else nothing could be read or written, or
// anything could.
func TestOtherNamesAccountsAndUsersAreFollowed(t *testing.T) {
	s := enter(t)
	s.run(`deploy/certificates.sh --inventory-namespace named --writer-namespace named all "$DIR/named" >"$DIR/named.sh"
for side in secured consuming; do
  kubectl --context $side create namespace named
  kubectl --context $side label namespace named pod-security.kubernetes.io/enforce=restricted
done
sh -e "$DIR/named.sh"`)
	defer s.run(`for side in secured consuming; do
  helm --kube-context $side uninstall unlike -n named --wait
  kubectl --context $side delete namespace named --wait=false
done`)
	const names = ` --set fullnameOverride=chosen --set serviceAccount.name=account --set commonLabels.team=platform`
	s.step("the inventory runs as the user that it is given", func(s *stage) {
		s.run(`helm --kube-context secured install unlike deploy/slicefeed-inventory -n named --wait --timeout 60s \
  --set settings.SECURED_SUBNET_CIDR=10.0.1.0/24 --set settings.RESOLVER=node-address \
  --set-json 'allowedClients=[{"san":"spiffe://example.org/slicefeed/writer","role":"subscriber"}]' \
  --set podSecurityContext.runAsUser=1000650000 --set podSecurityContext.runAsGroup=null --set podSecurityContext.fsGroup=1000650000` + names)
		out, _ := s.Run(
			s.ctx(),
			`kubectl --context secured -n named exec deployment/chosen -- /slicefeed-inventory preflight`,
		) // there is no node
		s.wantLines(out, "ok +certificate key +matches", "ok +list nodes +allowed", "ok +excess permissions +none found")
	})
	s.step("the writer runs as the user of its image, and leads", func(s *stage) {
		s.run(`helm --kube-context consuming install unlike deploy/slicefeed-writer -n named --wait --timeout 60s \
  -f deploy/slicefeed-writer/examples/minimal.yaml \
  --set podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null,podSecurityContext.fsGroup=1000650000` + names)
		if ids := s.run(
			`kubectl --context consuming -n named get deployment chosen -o jsonpath='{.spec.template.spec.securityContext}'`,
		); strings.Contains(
			ids,
			"runAsUser",
		) {
			s.t.Errorf("the template chooses a user: %s", ids)
		}
		s.until("it leads", func() bool {
			return s.run(
				`kubectl --context consuming -n named get lease slicefeed-default -o jsonpath='{.spec.holderIdentity}' --ignore-not-found`,
			) != ""
		})
	})
	s.step("the policies limit the writer's account, whatever it is called", func(s *stage) {
		out, _ := s.Run(
			s.ctx(),
			`kubectl --context consuming -n named exec deployment/chosen -- /slicefeed-writer preflight`,
		) // it has no inventory
		s.wantLines(
			out,
			"ok +excess permissions +none found",
			"ok +create endpointslices in named +allowed",
			"ok +admission policy +a slice with [0-9.]+ was denied",
		)
		out, err := s.Run(s.ctx(), `kubectl --context consuming --as system:serviceaccount:named:account create -f - <<'EOF'
`+foreignSlice+`EOF`)
		if err == nil || !strings.Contains(out, "ValidatingAdmissionPolicy 'chosen'") {
			s.t.Errorf("a slice with another address: %v\n%s", err, out)
		}
	})
	s.step("helm test fails with what preflight says", func(s *stage) {
		out, err := s.Run(s.ctx(), `helm --kube-context consuming test unlike -n named --logs --timeout 50s`)
		if err == nil {
			s.t.Error("it passed without an inventory")
		}
		s.wantLines(out, "FAIL +inventory +", "-  +initial sync +skipped", "ok +admission policy +a slice")
		s.run(`kubectl --context consuming -n named delete pod chosen-preflight`)
	})
	s.step("nothing but a label has the release's name", func(s *stage) {
		for side, more := range map[string]string{Secured: "", Consuming: ",validatingadmissionpolicies,validatingadmissionpolicybindings,flowschemas"} {
			out := s.run(
				`kubectl --context ` + side + ` get -n named deploy,sa,role,rolebinding,cm,svc,pdb,netpol,clusterroles,clusterrolebindings` + more + ` -l app.kubernetes.io/instance=unlike,team=platform -o name`,
			)
			if names := strings.Fields(out); len(names) < 6 || regexp.MustCompile(`unlike|/slicefeed`).MatchString(out) {
				s.t.Errorf("%s has %d objects:\n%s", side, len(names), out)
			}
		}
	})
}

func (s *stage) wantLines(text string, patterns ...string) {
	s.t.Helper()
	for _, pattern := range patterns {
		if !regexp.MustCompile(`(?m)^` + pattern).MatchString(text) {
			s.t.Errorf("no line is like %q:\n%s", pattern, text)
		}
	}
}
