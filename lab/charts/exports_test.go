package charts

import "testing"

// The chart permits get of the Services that its clients may see by name, and of all in a namespace with a pattern.
// Preflight must require exactly that.
func TestAnInventoryThatExportsServicesIsInstalled(t *testing.T) {
	s := enter(t)
	const k = "kubectl --context secured "
	s.run(k + `create namespace exporting; ` + k + `create namespace store; ` + k + `create namespace till
` + k + `create service clusterip web -n store --tcp=80
` + k + `label service web -n store slicefeed.dev/export=true
deploy/certificates.sh --inventory-namespace exporting all "$DIR/exporting" >/dev/null
` + k + `-n exporting create secret tls slicefeed-inventory-tls --cert="$DIR/exporting/inventory/tls.crt" --key="$DIR/exporting/inventory/tls.key"
` + k + `-n exporting create configmap slicefeed-inventory-peer-ca --from-file=ca.crt="$DIR/exporting/inventory/peer-ca.crt"
helm --kube-context secured install exporting deploy/slicefeed-inventory -n exporting \
  --set image.repository=ghcr.io/slicefeed/slicefeed-inventory,settings.SOURCE_KIND=service,settings.SECURED_SUBNET_CIDR=10.0.1.0/24 \
  --set settings.SOURCE_SERVICE_SELECTOR=slicefeed.dev/export=true \
  --set-json 'allowedClients=[{"san":"spiffe://example.org/slicefeed/writer","role":"subscriber","services":["store/web","till/*"]}]' \
  --wait --timeout 50s`)
	defer s.run(`helm --kube-context secured uninstall exporting -n exporting --wait
` + k + `delete namespace exporting store till --wait=false`)
	const inPod = k + "-n exporting exec deployment/exporting -- /slicefeed-inventory "
	s.wantLines(s.run(inPod+"preflight"), "ok +allowed clients +valid", "ok +get services in till +allowed",
		"ok +list endpointslices in store, till +allowed", "ok +exported Services +named in ALLOWED_CLIENTS_FILE: 1, all exported")
	s.wantLines(s.run(inPod+"list --source-service store/web -o json"), `\[\]`)
	s.run(k + `delete rolebinding -n store -l app.kubernetes.io/instance=exporting`)
	out, err := s.Run(s.ctx(), inPod+"preflight 2>&1")
	if err == nil {
		t.Error("preflight passes without the permissions of a namespace")
	}
	s.wantLines(out, "FAIL +list endpointslices in store, till")
}
