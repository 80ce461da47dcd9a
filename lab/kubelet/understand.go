package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// notUnderstood is an error about a template, not about the moment.
type notUnderstood struct{ error }

func isNotUnderstood(err error) bool {
	var no notUnderstood
	return errors.As(err, &no)
}

// understand wants a Pod template that is understood to its last field. What is known is taken
// out of a copy, with each value that means something else than what is done here left in; what
// remains is what this stand-in would have ignored.
func understand(spec *corev1.PodSpec) error {
	rest := spec.DeepCopy()
	if len(rest.Containers) != 1 {
		return notUnderstood{fmt.Errorf("the Pod template has %d containers: one is understood", len(rest.Containers))}
	}
	takeContainer(&rest.Containers[0])
	if empty(rest.Containers[0]) {
		rest.Containers = nil
	}
	left := rest.Volumes[:0]
	for _, v := range rest.Volumes {
		takeVolume(&v)
		if !empty(v) {
			left = append(left, v)
		}
	}
	rest.Volumes = left

	forget(&rest.RestartPolicy, corev1.RestartPolicyAlways)
	forget(&rest.DNSPolicy, corev1.DNSClusterFirst) // no DNS but /etc/hosts
	forget(&rest.SchedulerName, corev1.DefaultSchedulerName)
	rest.TerminationGracePeriodSeconds, rest.NodeName = nil, ""
	rest.ServiceAccountName, rest.DeprecatedServiceAccount, rest.AutomountServiceAccountToken = "", "", nil
	rest.EnableServiceLinks = nil // about Services of the namespace, which nobody here reads from the environment
	// Where a Pod is to run is moot: there is one node.
	rest.TopologySpreadConstraints, rest.Affinity, rest.NodeSelector, rest.Tolerations, rest.PriorityClassName = nil, nil, nil, nil, ""
	if s := rest.SecurityContext; s != nil {
		s.RunAsUser, s.RunAsGroup, s.FSGroup, s.RunAsNonRoot = nil, nil, nil, nil
		takeSeccomp(&s.SeccompProfile)
		if empty(s) {
			rest.SecurityContext = nil
		}
	}
	raw, err := json.Marshal(rest)
	if err != nil {
		return err
	}
	// The list of containers has no omitempty.
	if text := strings.NewReplacer(`"containers":null,`, "", `"containers":null`, "").Replace(string(raw)); text != "{}" {
		return notUnderstood{fmt.Errorf("the Pod template says what this stand-in does not understand: %s", text)}
	}
	return nil
}

func takeContainer(c *corev1.Container) {
	c.Name, c.Image, c.ImagePullPolicy, c.WorkingDir = "", "", "", strings.TrimPrefix(c.WorkingDir, "/")
	c.Command, c.Args = takeWords(c.Command), takeWords(c.Args)
	c.Ports, c.Resources = nil, corev1.ResourceRequirements{} // limits are told to the process, and not held
	c.TerminationMessagePolicy = ""
	forget(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	left := c.Env[:0]
	for _, e := range c.Env {
		_, _, err := envSource(e)
		if err != nil || len(takeWords([]string{e.Value})) > 0 {
			left = append(left, e)
		}
	}
	c.Env = left
	mounts := c.VolumeMounts[:0]
	for _, m := range c.VolumeMounts {
		m.Name, m.MountPath, m.ReadOnly = "", "", false
		if !empty(m) {
			mounts = append(mounts, m)
		}
	}
	c.VolumeMounts = mounts
	c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = takeProbe(c.LivenessProbe), takeProbe(c.ReadinessProbe), takeProbe(c.StartupProbe)
	if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		l.PreStop.Sleep = nil
		if empty(l.PreStop) {
			l.PreStop = nil
		}
		if empty(l) {
			c.Lifecycle = nil
		}
	}
	if s := c.SecurityContext; s != nil {
		s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot = nil, nil, nil
		s.ReadOnlyRootFilesystem = nil // it is read-only always
		if s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation {
			s.AllowPrivilegeEscalation = nil // there is nothing setuid to escalate with
		}
		if s.Privileged != nil && !*s.Privileged {
			s.Privileged = nil
		}
		if s.Capabilities != nil && len(s.Capabilities.Add) == 0 {
			s.Capabilities = nil // a process here has none
		}
		takeSeccomp(&s.SeccompProfile)
		if empty(s) {
			c.SecurityContext = nil
		}
	}
}

// takeSeccomp: a profile is not applied here; a process that runs without one runs the more.
func takeSeccomp(profile **corev1.SeccompProfile) {
	if *profile != nil && (*profile).Type == corev1.SeccompProfileTypeRuntimeDefault {
		*profile = nil
	}
}

// takeWords leaves the words that refer to variables, which are not expanded here.
func takeWords(words []string) (left []string) {
	for _, word := range words {
		if strings.Contains(word, "$(") {
			left = append(left, word)
		}
	}
	return left
}

// takeProbe leaves what asks in another way than by HTTP.
func takeProbe(p *corev1.Probe) *corev1.Probe {
	if p == nil || p.HTTPGet == nil || p.HTTPGet.Host != "" || len(p.HTTPGet.HTTPHeaders) > 0 ||
		p.HTTPGet.Scheme != corev1.URISchemeHTTP || p.TerminationGracePeriodSeconds != nil {
		return p
	}
	return nil
}

func takeVolume(v *corev1.Volume) {
	known := v.Secret != nil || v.ConfigMap != nil
	if e := v.EmptyDir; e != nil && (e.Medium == "" || e.Medium == corev1.StorageMediumMemory) {
		known = true // its size limit is not held
	}
	if v.Projected != nil {
		known = true
		for _, s := range v.Projected.Sources {
			s.Secret, s.ConfigMap, s.ServiceAccountToken = nil, nil, nil
			if s.DownwardAPI != nil {
				for _, item := range s.DownwardAPI.Items {
					known = known && item.FieldRef != nil && fieldKnown(item.FieldRef.FieldPath)
				}
				s.DownwardAPI = nil
			}
			known = known && empty(s)
		}
	}
	if known {
		*v = corev1.Volume{}
	}
}

// forget takes a value out if it is the one that is done here anyhow.
func forget[T comparable](field *T, understood T) {
	if *field == understood {
		var zero T
		*field = zero
	}
}

// empty reports whether all of a value has been taken out.
func empty(value any) bool {
	raw, err := json.Marshal(value)
	if err != nil {
		return false
	}
	switch string(raw) {
	case `{}`, `{"name":""}`, `{"name":"","mountPath":""}`, `{"name":"","resources":{}}`, `null`:
		return true
	}
	return false
}
