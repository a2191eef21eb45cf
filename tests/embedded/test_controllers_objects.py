"""The objects the controllers make, against those of a real control plane; names, limits, webhooks (section 2)."""

from typing import ClassVar

import pytest

from dispatch_kubeflow.backend.embedded.controllers.kinds import (
    CLUSTER_TRAINING_RUNTIMES,
    CONFIG_MAPS,
    JOB_SETS,
    SERVICES,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
)
from dispatch_kubeflow.backend.embedded.errors import ApiError
from tests.embedded.scene import NAMESPACE, Scene, project, runtime, sample, shape, train_job

PATCH = {
    "manager": "dispatch-kubeflow.io/checkpoint",
    "trainingRuntimeSpec": {
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "spec": {
                                "template": {
                                    "spec": {
                                        "containers": [
                                            {"name": "node", "volumeMounts": [{"name": "ck", "mountPath": "/ck"}]}
                                        ],
                                        "volumes": [{"name": "ck", "persistentVolumeClaim": {"claimName": "c1"}}],
                                    }
                                }
                            }
                        },
                    }
                ]
            }
        }
    },
}


@pytest.fixture
def scene():
    with Scene() as scene:
        yield scene


def written(theirs):
    """What a client must have sent to get that TrainJob back."""
    spec = {key: value for key, value in theirs["spec"].items() if key != "managedBy"}
    spec["runtimePatches"] = [
        {key: value for key, value in entry.items() if key != "time"} for entry in spec["runtimePatches"]
    ]
    metadata = {key: theirs["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    return {"metadata": metadata, "spec": spec}


@pytest.fixture
def read_back(scene):
    runtime_copy = sample("readback-plain-runtime")
    metadata = {key: runtime_copy["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    scene.cluster.create(TRAINING_RUNTIMES, {"metadata": metadata, "spec": runtime_copy["spec"]})
    job = written(sample("readback-plain-trainjob"))
    job["spec"]["trainer"]["resourcesPerNode"]["requests"]["cpu"] = "1000m"
    scene.cluster.create(TRAIN_JOBS, job)
    scene.advance(3)
    return scene


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("readback-plain-trainjob", TRAIN_JOBS),
        ("readback-plain-runtime", TRAINING_RUNTIMES),
        ("readback-plain-jobset", JOB_SETS),
    ],
)
def test_reads_back_as_on_the_real_thing(read_back, name, resource):
    ours = read_back.get(resource, "rbp-1")
    ours["metadata"].pop("managedFields", None)
    assert shape(ours) == shape(sample(name))


def labelled(scene):
    copy = runtime("lb-1")
    job = copy["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]
    for template, level in ((copy["spec"]["template"], "jobset"), (job, "job"), (job["spec"]["template"], "pod")):
        metadata = template.setdefault("metadata", {})
        metadata["labels"] = {
            **metadata.get("labels", {}),
            "dispatch-kubeflow.io/job": "lb",
            "dispatch-kubeflow.io/level": level,
            f"p/{level}": "1",
        }
        metadata["annotations"] = {"a/level": level}
    scene.cluster.create(TRAINING_RUNTIMES, copy)
    scene.cluster.create(TRAIN_JOBS, train_job("lb-1", 1, suspend=False))
    scene.settle()


def test_labels_of_each_level_end_where_they_do_on_the_real_thing(scene):
    labelled(scene)
    theirs = sample("labels-jobset")
    ours = scene.jobset("lb-1")
    assert shape(ours["spec"]) == shape(theirs["spec"])
    for field in ("labels", "annotations", "ownerReferences"):
        assert shape(ours["metadata"][field]) == shape(theirs["metadata"][field])


def test_a_running_pod_is_the_real_one(scene):
    labelled(scene)
    theirs, ours = sample("labels-pod"), scene.pod("lb-1", 0)
    theirs["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] = "*"
    for field in ("batch.kubernetes.io/controller-uid", "controller-uid"):
        theirs["metadata"]["labels"][field] = ours["metadata"]["labels"][field] = "*"
    # The service account's volume is not made here, and addresses and Nodes differ from run to run.
    theirs["spec"].pop("volumes")
    theirs["spec"]["containers"][0].pop("volumeMounts")
    for pod in (ours, theirs):
        pod["spec"]["nodeName"] = "*"
        pod["status"] |= {"podIP": "*", "podIPs": "*"}
        pod["status"]["conditions"].sort(key=lambda condition: condition["type"])
    assert shape(project(ours, theirs)) == shape(theirs)
    assert set(ours["spec"]) == set(theirs["spec"])
    assert set(ours["metadata"]) == set(theirs["metadata"])
    assert set(ours["status"]) == set(theirs["status"])


def test_the_pods_of_one_job_share_a_headless_service_that_selects_by_jobset_name(scene):
    scene.run("sv-1")
    service = scene.get(SERVICES, "sv-1")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"jobset.sigs.k8s.io/jobset-name": "sv-1"}
    assert "labels" not in service["metadata"]
    assert {pod["spec"]["subdomain"] for pod in scene.pods("sv-1")} == {"sv-1"}


def test_the_runtime_is_snapshot_once_and_a_later_edit_of_it_does_not_reach_the_job(scene):
    scene.gate("sn-1")
    snapshot = scene.get(CONFIG_MAPS, "sn-1-runtime-snapshot")
    assert "labels" not in snapshot["metadata"]
    assert snapshot["metadata"]["ownerReferences"][0]["uid"] == scene.train_job("sn-1")["metadata"]["uid"]
    container = {"name": "node", "image": "other:image", "env": [{"name": "LATE", "value": "1"}]}
    jobs = scene.get(TRAINING_RUNTIMES, "sn-1")["spec"]["template"]["spec"]["replicatedJobs"]
    jobs[0]["template"]["spec"]["template"]["spec"]["containers"] = [container]
    scene.cluster.patch(
        TRAINING_RUNTIMES, "sn-1", {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}, NAMESPACE
    )
    scene.open("sn-1")
    env = scene.pod("sn-1", 0)["spec"]["containers"][0]["env"]
    assert "LATE" not in [variable["name"] for variable in env]


@pytest.mark.parametrize(
    ("trainer", "processes"),
    [
        ({"numProcPerNode": 3}, "3"),
        ({}, "1"),
        ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 8}}}, "auto"),
        ({"resourcesPerNode": {"limits": {"nvidia.com/gpu": 0}}}, "1"),
        ({"resourcesPerNode": {"limits": {"nvidia.com/mig-1g.10gb": 1}, "requests": {"cpu": "2"}}}, "2"),
        ({"resourcesPerNode": {"limits": {"cpu": "7"}, "requests": {"cpu": "3500m"}}}, "4"),
        ({"resourcesPerNode": {"limits": {"cpu": "7"}}}, "7"),
        ({"resourcesPerNode": {"requests": {"cpu": "100m"}}}, "1"),
    ],
)
def test_processes_per_node(scene, trainer, processes):
    scene.gate("pp-1", spec={"trainer": trainer})
    [job] = scene.jobset("pp-1")["spec"]["replicatedJobs"]
    env = job["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {variable["name"]: variable.get("value") for variable in env}["PET_NPROC_PER_NODE"] == processes


def test_resources_merge_key_by_key_with_the_runtimes(scene):
    copy = runtime("rm-1")
    [job] = copy["spec"]["template"]["spec"]["replicatedJobs"]
    job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "1", "memory": "1Gi"}
    }
    scene.cluster.create(TRAINING_RUNTIMES, copy)
    scene.cluster.create(TRAIN_JOBS, train_job("rm-1", trainer={"resourcesPerNode": {"limits": {"cpu": "2"}}}))
    scene.settle()
    [job] = scene.jobset("rm-1")["spec"]["replicatedJobs"]
    limits = job["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {"cpu": "2", "memory": "1Gi"}


def test_without_a_trainer_no_torch_variable_is_set(scene):
    job = train_job("nt-1")
    del job["spec"]["trainer"]
    scene.cluster.create(TRAINING_RUNTIMES, runtime("nt-1"))
    scene.cluster.create(TRAIN_JOBS, job)
    scene.settle()
    [replicated] = scene.jobset("nt-1")["spec"]["replicatedJobs"]
    assert "env" not in replicated["template"]["spec"]["template"]["spec"]["containers"][0]


def test_the_default_runtime_is_installed_unmodified_and_exempt_from_validation(scene):
    installed = scene.cluster.get(CLUSTER_TRAINING_RUNTIMES, "torch-distributed")
    assert installed["metadata"]["labels"]["trainer.kubeflow.org/webhook-validation"] == "disabled"
    [job] = installed["spec"]["template"]["spec"]["replicatedJobs"]
    assert job["template"]["spec"]["template"]["spec"]["containers"][0]["image"].startswith("pytorch/pytorch:2.13")


class TestNames:
    @pytest.mark.parametrize(
        ("length", "nodes", "runs"),
        [
            (46, 1000, True),
            (47, 10, True),
            (48, 10, True),
            (47, 1000, False),
            (49, 10, False),
            (52, 2, False),
            (62, 2, False),
        ],
    )
    def test_a_name_too_long_for_its_pods_leaves_the_trainjob_suspended_for_ever(self, scene, length, nodes, runs):
        name = "n" * length
        scene.cluster.create(TRAINING_RUNTIMES, runtime(name))
        scene.cluster.create(TRAIN_JOBS, train_job(name, nodes))
        scene.advance(1)
        assert scene.absent(JOB_SETS, name) is not runs
        assert [item["type"] for item in scene.train_job(name)["status"]["conditions"]] == ["Suspended"]
        told = [event for event in scene.events("TrainJob") if event["reason"] == "TrainJobResourcesCreationFailed"]
        assert bool(told) is not runs
        if not runs:
            assert 'admission webhook "vjobset.kb.io" denied the request' in told[0]["message"]
            assert "pod names generated for this JobSet will exceed 63 characters" in told[0]["message"]
            assert ("job names" in told[0]["message"]) is (length >= 62)

    def test_the_refusal_is_told_once_and_counted(self, scene):
        name = "n" * 60
        scene.cluster.create(TRAINING_RUNTIMES, runtime(name))
        scene.cluster.create(TRAIN_JOBS, train_job(name))
        scene.advance(30)
        assert len(scene.events("TrainJob")) == 1

    def test_a_thousand_nodes_get_a_thousand_pods(self, scene):
        name = "n" * 46
        for index in range(3, 12):
            scene.cluster.add_node(f"node-{index}")
        scene.run(name, nodes=1000)
        pods = scene.pods(name)
        assert len(pods) == 1000
        assert max(len(pod["metadata"]["name"]) for pod in pods) == 63


class TestTheDefaulter:
    def create(self, scene, **spec):
        scene.cluster.create(TRAINING_RUNTIMES, runtime("df-1"))
        return scene.cluster.create(TRAIN_JOBS, train_job("df-1", **spec))

    def test_quantities_are_kept_where_nothing_else_changes(self, scene):
        made = self.create(scene, trainer={"resourcesPerNode": {"limits": {"cpu": "1000m", "memory": "1.5Gi"}}})
        assert made["spec"]["trainer"]["resourcesPerNode"]["limits"] == {"cpu": "1000m", "memory": "1.5Gi"}

    def test_quantities_are_rewritten_beside_a_patch_entry(self, scene):
        given = {"cpu": "1000m", "memory": "1.5Gi", "a.io/x": "0.5", "nvidia.com/gpu": 2}
        made = self.create(scene, trainer={"resourcesPerNode": {"limits": given}}, runtimePatches=[PATCH])
        wanted = {"cpu": "1", "memory": "1536Mi", "a.io/x": "500m", "nvidia.com/gpu": "2"}
        assert made["spec"]["trainer"]["resourcesPerNode"]["limits"] == wanted

    def test_a_time_that_is_given_is_kept_and_so_are_the_quantities(self, scene):
        entry = {**PATCH, "time": "2020-01-01T00:00:00Z"}
        limits = {"cpu": "1000m"}
        made = self.create(scene, trainer={"resourcesPerNode": {"limits": limits}}, runtimePatches=[entry])
        assert made["spec"]["runtimePatches"][0]["time"] == "2020-01-01T00:00:00Z"
        assert made["spec"]["trainer"]["resourcesPerNode"]["limits"] == limits

    def test_an_unchanged_entry_keeps_its_time_at_an_update(self, scene):
        made = self.create(scene, runtimePatches=[PATCH])
        scene.advance(60)
        again = scene.cluster.patch(TRAIN_JOBS, "df-1", {"spec": {"runtimePatches": [PATCH]}}, NAMESPACE)
        assert again["spec"]["runtimePatches"][0]["time"] == made["spec"]["runtimePatches"][0]["time"]

    @pytest.mark.parametrize(
        ("spec", "message"),
        [
            (
                {"trainer": {"numNodes": 2**31}},
                (
                    "json: cannot unmarshal number 2147483648 into Go struct field "
                    "Trainer.spec.trainer.numNodes of type int32"
                ),
            ),
            (
                {"trainer": {"numNodes": "2"}},
                "json: cannot unmarshal string into Go struct field Trainer.spec.trainer.numNodes of type int32",
            ),
            (
                {"trainer": {"resourcesPerNode": {"limits": {"cpu": "abc"}}}},
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
            ),
            (
                {"trainer": {"command": "python"}},
                "json: cannot unmarshal string into Go struct field Trainer.spec.trainer.command of type []string",
            ),
            (
                {"trainer": {"env": [{"name": "A", "value": 1}]}},
                "json: cannot unmarshal number into Go struct field EnvVar.spec.trainer.env.value of type string",
            ),
        ],
    )
    def test_what_does_not_decode_is_a_400_without_a_reason(self, scene, spec, message):
        with pytest.raises(ApiError) as caught:
            self.create(scene, **spec)
        assert (caught.value.status, caught.value.reason) == (400, "")
        start = 'admission webhook "defaulter.trainjob.trainer.kubeflow.org" denied the request: '
        assert caught.value.message == start + message

    def test_suspend_of_another_type_is_a_400_too(self, scene):
        with pytest.raises(ApiError) as caught:
            self.create(scene, suspend="yes")
        assert caught.value.status == 400

    @pytest.mark.parametrize("nodes", [0, -1, 2.0])
    def test_odd_node_counts_are_accepted(self, scene, nodes):
        assert self.create(scene, trainer={"numNodes": nodes})["spec"]["trainer"]["numNodes"] == nodes


class TestTheValidator:
    def refusal(self, scene, job, message=""):
        with pytest.raises(ApiError) as caught:
            scene.cluster.create(TRAIN_JOBS, job)
        assert (caught.value.status, caught.value.reason, caught.value.details) == (403, "Forbidden", {})
        start = 'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: '
        assert caught.value.message.startswith(start)
        return caught.value.message.removeprefix(start)

    def test_an_absent_runtime(self, scene):
        said = self.refusal(scene, train_job("ab-1"))
        assert said == (
            "spec.runtimeRef: Invalid value: "
            '{"name":"ab-1","apiGroup":"trainer.kubeflow.org","kind":"TrainingRuntime"}: '
            'TrainingRuntime.trainer.kubeflow.org "ab-1" not found: '
            "specified trainingRuntime must be created before the TrainJob is created"
        )

    def test_a_cache_that_lags_denies_what_exists(self, scene):
        scene.cluster.trainer_webhooks.blind = True
        scene.cluster.create(TRAINING_RUNTIMES, runtime("lg-1"))
        assert "must be created before the TrainJob is created" in self.refusal(scene, train_job("lg-1"))
        scene.cluster.trainer_webhooks.blind = False
        assert scene.cluster.create(TRAIN_JOBS, train_job("lg-1"))

    def test_back_to_back_is_accepted(self, scene):
        for index in range(40):
            scene.cluster.create(TRAINING_RUNTIMES, runtime(f"bb-{index}"))
            scene.cluster.create(TRAIN_JOBS, train_job(f"bb-{index}"))

    def test_reserved_variables(self, scene):
        scene.cluster.create(TRAINING_RUNTIMES, runtime("rs-1"))
        env = [{"name": "PET_NNODES", "value": "1"}]
        said = self.refusal(scene, train_job("rs-1", trainer={"env": env}))
        assert said == (
            'spec.trainer.env: Invalid value: [{"name":"PET_NNODES","value":"1"}]: '
            "must not have reserved envs, invalid envs configured: [PET_NNODES]"
        )

    def test_an_unknown_kind_of_runtime(self, scene):
        job = train_job("uk-1", runtimeRef={"name": "x", "kind": "Nonsense"})
        assert self.refusal(scene, job) == "unsupported runtime: Nonsense.trainer.kubeflow.org"

    def test_a_patch_of_a_job_that_is_not_there_is_accepted_and_makes_no_jobset(self, scene):
        scene.cluster.create(TRAINING_RUNTIMES, runtime("pt-1"))
        jobs = [{"name": "other"}]
        entry = {"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        assert scene.cluster.create(TRAIN_JOBS, train_job("pt-1", runtimePatches=[entry]))
        scene.advance(1)
        assert [job["name"] for job in scene.jobset("pt-1")["spec"]["replicatedJobs"]] == ["node", "other"]

    def test_a_patch_entry_reaches_every_level(self, scene):
        pod = {
            "metadata": {"labels": {"l": "pod"}},
            "spec": {
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "nodeSelector": {"kubernetes.io/hostname": "node-1"},
            },
        }
        job = {"metadata": {"labels": {"l": "job"}}, "spec": {"template": pod}}
        template = {
            "metadata": {"labels": {"l": "jobset"}},
            "spec": {"replicatedJobs": [{"name": "node", "template": job}]},
        }
        entry = {"manager": "a.io/b", "trainingRuntimeSpec": {"template": template}}
        scene.cluster.create(TRAINING_RUNTIMES, runtime("pl-1"))
        scene.cluster.create(TRAIN_JOBS, train_job("pl-1", suspend=False, runtimePatches=[entry]))
        scene.advance(2)
        levels = [scene.jobset("pl-1"), scene.job("pl-1"), scene.pod("pl-1", 0)]
        assert [obj["metadata"]["labels"]["l"] for obj in levels] == ["jobset", "job", "pod"]
        assert {pod["spec"]["nodeName"] for pod in scene.pods("pl-1")} == {"node-1"}

    def test_a_patch_of_the_trainers_environment(self, scene):
        scene.cluster.create(TRAINING_RUNTIMES, runtime("pe-1"))
        pod = {"containers": [{"name": "node", "env": [{"name": "A", "value": "1"}]}, {"name": "side"}]}
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
        entry = {"manager": "a.io/b", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        said = self.refusal(scene, train_job("pe-1", runtimePatches=[entry]))
        assert said.endswith("must not have envs for the dataset-initializer, model-initializer, node containers")

    def test_a_manager_without_a_domain(self, scene):
        scene.cluster.create(TRAINING_RUNTIMES, runtime("pm-1"))
        said = self.refusal(scene, train_job("pm-1", runtimePatches=[{"manager": "me"}]))
        what = 'must be a domain-prefixed path (such as "acme.io/foo")'
        assert said == f'spec.runtimePatches.manager: Invalid value: "me": {what}'

    @pytest.mark.parametrize(
        ("policy", "name"), [("mpi", "OMPI_MCA_plm_rsh_args"), ("xgboost", "DMLC_TASK_ID"), ("torch", "PET_NODE_RANK")]
    )
    def test_each_policy_reserves_its_own_variables(self, scene, policy, name):
        copy = runtime("rp-1")
        copy["spec"]["mlPolicy"] = {policy: {}}
        scene.cluster.create(TRAINING_RUNTIMES, copy)
        said = self.refusal(scene, train_job("rp-1", trainer={"env": [{"name": name, "value": "1"}]}))
        assert said.endswith(f"invalid envs configured: [{name}]")

    def test_a_trainjob_without_a_spec(self, scene):
        assert self.refusal(scene, {"metadata": {"name": "no-1", "namespace": NAMESPACE}}) == "unsupported runtime: "

    def test_an_initializer_the_runtime_has_no_job_for(self, scene):
        scene.cluster.create(TRAINING_RUNTIMES, runtime("in-1"))
        job = train_job("in-1", initializer={"dataset": {"storageUri": "hf://a/b"}})
        said = self.refusal(scene, job)
        assert said.endswith("must have dataset-initializer job when trainJob is configured with input datasetConfig")

    def test_a_runtime_whose_trainer_has_no_container_named_node(self, scene):
        copy = runtime("bad-1")
        [job] = copy["spec"]["template"]["spec"]["replicatedJobs"]
        job["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "main"
        job["replicas"] = 2
        with pytest.raises(ApiError) as caught:
            scene.cluster.create(TRAINING_RUNTIMES, copy)
        assert caught.value.status == 403
        assert "must contain the required container for the ancestor: trainer" in caught.value.message
        assert "always must be 1" in caught.value.message
        copy["metadata"]["labels"] = {"trainer.kubeflow.org/webhook-validation": "disabled"}
        assert scene.cluster.create(TRAINING_RUNTIMES, copy)

    def test_an_ancestor_nobody_knows_is_not_looked_at(self, scene):
        copy = runtime("ua-1")
        [job] = copy["spec"]["template"]["spec"]["replicatedJobs"]
        job["template"]["metadata"]["labels"] = {"trainer.kubeflow.org/trainjob-ancestor-step": "other"}
        job["replicas"] = 2
        assert scene.cluster.create(TRAINING_RUNTIMES, copy)

    def test_a_namespaced_runtime_is_looked_at_when_it_is_created_only(self, scene):
        scene.cluster.create(TRAINING_RUNTIMES, runtime("up-1"))
        jobs = scene.get(TRAINING_RUNTIMES, "up-1")["spec"]["template"]["spec"]["replicatedJobs"]
        jobs[0]["template"]["spec"]["template"]["spec"]["containers"][0]["name"] = "main"
        patch = {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}
        assert scene.cluster.patch(TRAINING_RUNTIMES, "up-1", patch, NAMESPACE)


def initializing(
    name, *, container="dataset-initializer", mounts=({"name": "initializer", "mountPath": "/workspace"},)
):
    """A runtime that fetches a data set before it trains."""
    copy = runtime(name)
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": container, "image": "i:j", "volumeMounts": [dict(mount) for mount in mounts]}],
        "volumes": [{"name": "initializer", "emptyDir": {}}],
    }
    template = {"spec": {"backoffLimit": 0, "template": {"spec": pod}}}
    if container == "dataset-initializer":
        template["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer"}}
    jobs = copy["spec"]["template"]["spec"]["replicatedJobs"]
    jobs[0]["dependsOn"] = [{"name": "dataset-initializer", "status": "Complete"}]
    jobs.insert(0, {"name": "dataset-initializer", "template": template})
    return copy


class TestInitializers:
    DATASET: ClassVar = {"storageUri": "hf://a/b", "env": [{"name": "E", "value": "1"}], "secretRef": {"name": "s"}}

    def test_it_runs_before_the_trainer_with_what_the_trainjob_gives_it(self, scene):
        scene.cluster.create(TRAINING_RUNTIMES, initializing("in-2"))
        scene.cluster.create(TRAIN_JOBS, train_job("in-2", suspend=False, initializer={"dataset": self.DATASET}))
        scene.advance(2)
        [first] = scene.pods("in-2")
        [container] = first["spec"]["containers"]
        values = {variable["name"]: variable.get("value") for variable in container["env"]}
        assert (values["STORAGE_URI"], values["E"]) == ("hf://a/b", "1")
        assert container["envFrom"] == [{"secretRef": {"name": "s"}}]
        scene.end(first, 0)
        scene.advance(4)
        assert len(scene.active("in-2")) == 2

    @pytest.mark.parametrize(
        ("copy", "fault"),
        [
            (
                initializing("in-3", container="other"),
                "must have container with name - dataset-initializer in the dataset-initializer job",
            ),
            (
                initializing("in-3", mounts=()),
                (
                    "must have volumeMount with name - initializer in container dataset-initializer "
                    "of the dataset-initializer job"
                ),
            ),
        ],
    )
    def test_a_runtime_that_cannot_is_refused(self, scene, copy, fault):
        scene.cluster.create(TRAINING_RUNTIMES, copy)
        with pytest.raises(ApiError) as caught:
            scene.cluster.create(TRAIN_JOBS, train_job("in-3", initializer={"dataset": self.DATASET}))
        assert caught.value.message.endswith(fault)


def test_without_a_policy_the_jobs_own_parallelism_counts(scene):
    copy = runtime("np-1", parallelism=3, completions=3)
    del copy["spec"]["mlPolicy"]
    scene.cluster.create(TRAINING_RUNTIMES, copy)
    scene.cluster.create(TRAIN_JOBS, train_job("np-1", nodes=7))
    scene.settle()
    [job] = scene.jobset("np-1")["spec"]["replicatedJobs"]
    assert (job["template"]["spec"]["parallelism"], job["template"]["spec"]["completions"]) == (3, 3)


def test_torchtune_gets_no_master_address(scene):
    scene.gate("tt-1", spec={"trainer": {"command": ["tune", "run"]}})
    [job] = scene.jobset("tt-1")["spec"]["replicatedJobs"]
    names = [variable["name"] for variable in job["template"]["spec"]["template"]["spec"]["containers"][0]["env"]]
    assert names == ["PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK"]
