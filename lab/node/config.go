package node

// containerdConfig has all of containerd's files below one directory: state, data, CNI.
const containerdConfig = `version = 2
root = "%[1]s/data"
state = "%[1]s/state"
[grpc]
  address = "%[1]s/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "%[1]s/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  restrict_oom_score_adj = true # what root may not lower in a container is left as it is
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "` + cniPlugins + `"
    conf_dir = "%[1]s/cni"
`

// cniConfig gives each Pod a cable to the Node, and an address.
const cniConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "ptp", "ipam": {
    "type": "host-local", "dataDir": "%[1]s/addresses", "ranges": [[{"subnet": "%[2]s"}]], "routes": [{"dst": "0.0.0.0/0"}]
  }
}]}
`

// kubeletConfig differs from a kubelet's defaults where a test has no minutes, and where they would make cgroups for
// the Node itself or depend on how full the machine's disk is.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[2]s
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: "%[1]s/ca.crt"}}
authorization: {mode: AlwaysAllow} # of whoever has a certificate of the control plane
containerRuntimeEndpoint: unix://%[1]s/containerd.sock
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
evictionHard: {nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
clusterDomain: cluster.local
clusterDNS: ["%[3]s"]
podLogsDir: %[1]s/logs
volumePluginDir: %[1]s/plugins
syncFrequency: 2s # how late a changed Secret is seen; the default is a minute
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
`
