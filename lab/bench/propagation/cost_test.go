package propagation

import "testing"

func TestWritesAndRefusalsAreFoundAmongTheMetrics(t *testing.T) {
	const text = `# TYPE apiserver_request_total counter
apiserver_request_total{code="200",group="discovery.k8s.io",resource="endpointslices",scope="resource",verb="PUT"} 500
apiserver_request_total{code="201",group="discovery.k8s.io",resource="endpointslices",scope="resource",verb="POST"} 3
apiserver_request_total{code="200",group="discovery.k8s.io",resource="endpointslices",scope="resource",verb="DELETE"} 1
apiserver_request_total{code="409",group="discovery.k8s.io",resource="endpointslices",scope="resource",verb="PUT"} 7
apiserver_request_total{code="200",group="discovery.k8s.io",resource="endpointslices",scope="namespace",verb="LIST"} 9
apiserver_request_total{code="200",group="",resource="services",scope="resource",verb="PUT"} 11
apiserver_request_total{code="429",group="discovery.k8s.io",resource="endpointslices",scope="resource",verb="PUT"} 13
apiserver_request_total{code="429",group="",resource="nodes",scope="cluster",verb="LIST"} 1e+01
apiserver_flowcontrol_rejected_requests_total{flow_schema="service-accounts",reason="queue-full"} 12
apiserver_flowcontrol_current_inqueue_requests{flow_schema="service-accounts"} 8
process_start_time_seconds 1.7
`
	got, err := countsIn([]byte(text))
	if want := (cost{writes: 504, refused: 23, rejected: 12}); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := countsIn([]byte(`apiserver_flowcontrol_rejected_requests_total{a="b"} many`)); err == nil {
		t.Error("what is no number is no error")
	}
}
