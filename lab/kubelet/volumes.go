package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// file is one of a volume.
type file struct {
	data []byte
	mode int32
}

// token is a service account's, with the time from which it is to be replaced.
type token struct {
	text  string
	renew time.Time
}

// missing is what a kubelet says while it waits.
type missing struct{ error }

func volumeDir(p *pod, name string) string { return filepath.Join(p.dir(), "volumes", name) }

// refresh brings the volumes up to date. What cannot be had leaves them as they are: a kubelet
// does so too.
func (p *pod) refresh(ctx context.Context) {
	if err := p.materialise(ctx); err == nil {
		p.tell(ctx) // which may have failed before
	}
}

// materialise writes all volumes of the Pod.
func (p *pod) materialise(ctx context.Context) error {
	for _, v := range p.object.Spec.Volumes {
		dir := volumeDir(p, v.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if v.EmptyDir != nil {
			continue
		}
		content, err := p.content(ctx, v.VolumeSource)
		if err != nil {
			return fmt.Errorf("MountVolume.SetUp failed for volume %q: %w", v.Name, err)
		}
		if err := p.write(dir, content); err != nil {
			return fmt.Errorf("write volume %q: %w", v.Name, err)
		}
	}
	return nil
}

func (p *pod) content(ctx context.Context, v corev1.VolumeSource) (map[string]file, error) {
	all := map[string]file{}
	switch {
	case v.Secret != nil:
		s := v.Secret
		return all, p.addSecret(all, s.SecretName, s.Items, s.Optional, *s.DefaultMode)
	case v.ConfigMap != nil:
		c := v.ConfigMap
		return all, p.addConfigMap(all, c.Name, c.Items, c.Optional, *c.DefaultMode)
	case v.Projected == nil:
		return nil, notUnderstood{errors.New("it is of an unknown kind")}
	}
	mode := *v.Projected.DefaultMode
	for _, s := range v.Projected.Sources {
		var err error
		switch {
		case s.Secret != nil:
			err = p.addSecret(all, s.Secret.Name, s.Secret.Items, s.Secret.Optional, mode)
		case s.ConfigMap != nil:
			err = p.addConfigMap(all, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, mode)
		case s.ServiceAccountToken != nil:
			var text string
			text, err = p.token(ctx, s.ServiceAccountToken)
			all[s.ServiceAccountToken.Path] = file{[]byte(text), mode}
		case s.DownwardAPI != nil:
			for _, item := range s.DownwardAPI.Items {
				all[item.Path] = file{[]byte(p.field(item.FieldRef.FieldPath)), mode}
			}
		default:
			err = notUnderstood{errors.New("a projected source is of an unknown kind")}
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p *pod) addSecret(all map[string]file, name string, items []corev1.KeyToPath, optional *bool, mode int32) error {
	secret, err := p.kubelet.secrets.Secrets(p.object.Namespace).Get(name)
	if err != nil {
		return absent(err, "secret", name, optional)
	}
	return add(all, "secret "+name, secret.Data, items, optional, mode)
}

func (p *pod) addConfigMap(all map[string]file, name string, items []corev1.KeyToPath, optional *bool, mode int32) error {
	config, err := p.kubelet.configs.ConfigMaps(p.object.Namespace).Get(name)
	if apierrors.IsNotFound(err) && name == rootCA {
		// A controller of a real cluster puts this one into each namespace.
		data := map[string][]byte{"ca.crt": p.kubelet.options.ControlPlane.AdminConfig().CAData}
		return add(all, "configmap "+name, data, items, optional, mode)
	}
	if err != nil {
		return absent(err, "configmap", name, optional)
	}
	data := map[string][]byte{}
	for key, text := range config.Data {
		data[key] = []byte(text)
	}
	maps.Copy(data, config.BinaryData)
	return add(all, "configmap "+name, data, items, optional, mode)
}

// rootCA is the ConfigMap with the CA of the API server.
const rootCA = "kube-root-ca.crt"

func absent(err error, kind, name string, optional *bool) error {
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil
	}
	return missing{fmt.Errorf("%s %q not found", kind, name)}
}

func add(all map[string]file, what string, data map[string][]byte, items []corev1.KeyToPath, optional *bool, mode int32) error {
	if items == nil {
		for key, raw := range data {
			all[key] = file{raw, mode}
		}
		return nil
	}
	for _, item := range items {
		raw, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return missing{fmt.Errorf("%s references non-existent key: %s", what, item.Key)}
		}
		its := mode
		if item.Mode != nil {
			its = *item.Mode
		}
		all[item.Path] = file{raw, its}
	}
	return nil
}

// token asks the API server for one that is bound to the Pod, as a kubelet does, and for the
// next when four fifths of its life are over.
func (p *pod) token(ctx context.Context, s *corev1.ServiceAccountTokenProjection) (string, error) {
	key := s.Audience + "|" + s.Path
	if t, ok := p.tokens[key]; ok && time.Now().Before(t.renew) {
		return t.text, nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: s.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.object.Name, UID: p.object.UID},
	}}
	if s.Audience != "" {
		request.Spec.Audiences = []string{s.Audience}
	}
	account := p.object.Spec.ServiceAccountName
	issued, err := p.kubelet.client.CoreV1().ServiceAccounts(p.object.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of service account %s: %w", account, err)
	}
	life := time.Until(issued.Status.ExpirationTimestamp.Time)
	p.tokens[key] = token{issued.Status.Token, time.Now().Add(life * 4 / 5)}
	return issued.Status.Token, nil
}

// readable is a file's mode as the Pod's user meets it. The files are root's and the fsGroup's,
// but here everything belongs to the one user there is: so what the owner may do is
// made what that user might.
func (p *pod) readable(mode int32) os.FileMode {
	switch security := p.object.Spec.SecurityContext; {
	case p.user() == 0:
		return os.FileMode(mode) & 0o700
	case security != nil && security.FSGroup != nil:
		return os.FileMode(mode|0o440) & 0o070 << 3
	}
	return os.FileMode(mode) & 0o007 << 6
}

const (
	present  = "..data"
	upcoming = "..data_tmp"
)

// write replaces a volume's content in one step, as a kubelet does: what a reader opens is a
// link to ..data, which is a link to a directory that never changes.
func (p *pod) write(dir string, content map[string]file) error {
	before, _ := os.Readlink(filepath.Join(dir, present)) // none yet
	if before != "" && p.same(filepath.Join(dir, before), content) {
		return nil
	}
	next := ".." + time.Now().UTC().Format("2006_01_02_15_04_05.") + strconv.Itoa(time.Now().Nanosecond())
	for name, f := range content {
		path := filepath.Join(dir, next, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, 0o600); err != nil {
			return err
		}
		if err := os.Chmod(path, p.readable(f.mode)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, next), 0o755); err != nil {
		return err
	}
	_ = os.Remove(filepath.Join(dir, upcoming)) // of a write that was interrupted
	if err := os.Symlink(next, filepath.Join(dir, upcoming)); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, upcoming), filepath.Join(dir, present)); err != nil {
		return err
	}
	if err := link(dir, content); err != nil {
		return err
	}
	if before != "" {
		return os.RemoveAll(filepath.Join(dir, before))
	}
	return nil
}

// link has the names that a reader knows lead to the present content, and no others.
func link(dir string, content map[string]file) error {
	tops := map[string]bool{}
	for name := range content {
		top, _, _ := bytes.Cut([]byte(name), []byte("/"))
		tops[string(top)] = true
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if len(name) > 2 && name[:2] == ".." {
			continue
		}
		if !tops[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
		delete(tops, name)
	}
	for name := range tops {
		if err := os.Symlink(filepath.Join(present, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) same(dir string, content map[string]file) bool {
	n := 0
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		n++
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(path)
		f, ok := content[name]
		if err == nil && (!ok || !bytes.Equal(raw, f.data)) {
			err = fmt.Errorf("%s is another", name)
		}
		return err
	})
	return err == nil && n == len(content)
}
