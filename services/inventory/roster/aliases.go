package roster

import "github.com/slicefeed/slicefeed/services/inventory/source"

// The terms of package source.
type (
	Candidate = source.Candidate
	News      = source.Update
	Port      = source.Port
	Step      = source.Step
	Result    = source.StepResult
	Server    = source.Server
	NIC       = source.NIC
	Listing   = source.Listing
	Look      = source.Verification
	State     = source.NodeState
	Reason    = source.OmissionReason
	Sync      = source.SyncState
	Part      = source.PartStatus
	Status    = source.Status
)

const (
	NoLook, Light, Full             = source.NoVerification, source.LightVerification, source.FullVerification
	Note, Passed, Failed, Skipped   = source.Note, source.Passed, source.Failed, source.Skipped
	Ready, Draining, NotReady       = source.Ready, source.Draining, source.NotReady
	Synced, Degraded, Unsynced      = source.Synced, source.Degraded, source.Unsynced
	ControlPlane, ExcludedByLabel   = source.ControlPlane, source.ExcludedByLabel
	NotSelected, NotFoundInIONOS    = source.NotSelected, source.NotFoundInIONOS
	AmbiguousServer, NoAddressOnLAN = source.AmbiguousServer, source.NoAddressOnLAN
	AmbiguousAddress, OutsideSubnet = source.AmbiguousAddress, source.OutsideSubnet
	SharedAddress, NotResolvedYet   = source.SharedAddress, source.NotResolvedYet
	InvalidRecord                   = source.InvalidRecord
	StageSource, StageEligibility   = source.StageSource, source.StageEligibility
	StageState, StageMatch          = source.StageState, source.StageMatch
	StageAddress, StageClaim        = source.StageAddress, source.StageClaim
)
