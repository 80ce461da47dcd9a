// Definitions of custom resources, from the modules of those who define them. Nothing is built
// here: they are downloaded for the YAML files in them, and go.sum holds them to what they are.
module github.com/slicefeed/slicefeed/lab/upstream/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/cert-manager/trust-manager v0.25.0
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/mcs-api v0.5.2
)
