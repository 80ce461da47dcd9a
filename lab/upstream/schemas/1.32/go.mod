// The schemas of Kubernetes 1.32's objects, as client-go has them. Nothing is built here, and go.sum holds it to what it is.
module github.com/slicefeed/slicefeed/lab/upstream/schemas/1.32

go 1.26.0

require k8s.io/client-go v0.32.0
