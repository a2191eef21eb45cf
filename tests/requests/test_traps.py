"""The register of what the official client gets wrong when things go wrong, and of the tests that show it shut here.

Each line is one fact that was measured of the client (kubernetes 37, urllib3 2.8). A test that is named here and does
not exist, or a trap's test that no line cites, fails.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TRAPS = {
    # What matters most.
    "PUT, DELETE and GET are sent up to four times": [
        "test_an_answer_that_goes_wrong_at_any_boundary_gives_the_predicted_result",
        "test_a_request_cut_at_any_of_its_bytes_is_lost_and_made_once",
        "test_trap_the_close_that_crosses_the_request_is_lost_for_every_verb",
    ],
    "POST and PATCH too: on a TLS error after the request": [
        "test_trap_tls_that_breaks_after_the_request_is_lost_and_made_once"
    ],
    "POST and PATCH too: behind a proxy": ["test_trap_a_tunnelled_request_that_is_cut_is_lost_and_made_once"],
    "POST and PATCH too: on redirects": ["test_trap_redirects_are_not_followed"],
    "a Retry-After is slept, beyond every timeout": [
        "test_trap_retry_after_is_told_and_not_slept",
        "test_trap_a_retry_after_that_is_no_number_changes_nothing",
    ],
    "a second try's failed dial hides a first try that was committed": [
        "test_no_definite_answer_is_ever_contradicted_by_the_cluster"
    ],
    "ProxyError does not mean that the proxy was not reached": [
        "test_trap_a_tunnelled_request_that_is_cut_is_lost_and_made_once",
        "test_trap_a_forwarding_proxy_that_cuts_leaves_it_unknown",
        "test_trap_a_502_of_a_forwarding_proxy_is_no_definite_answer",
        "test_trap_a_connect_that_is_refused_is_unsent_whatever_its_status",
        "test_trap_a_proxy_that_cannot_be_reached_is_unsent",
    ],
    "ReadTimeoutError does not mean sent: a handshake or a CONNECT that hangs raises it too": [
        "test_a_deadline_ends_a_request_wherever_it_hangs",
        "test_the_bound_of_one_request_is_no_deadline_of_the_context",
    ],
    "TLS trouble looks the same before and after the request": [
        "test_trap_a_failed_handshake_is_unsent",
        "test_trap_a_handshake_that_is_cut_is_unsent",
        "test_trap_a_plain_peer_is_unsent_to_tls",
        "test_trap_tls_that_breaks_after_the_request_is_lost_and_made_once",
        "test_trap_a_client_certificate_that_is_not_accepted_is_never_a_definite_answer",
    ],
    "dials and names fail by many exceptions": [
        "test_trap_a_refused_connection_is_unsent",
        "test_trap_a_name_that_cannot_be_looked_up_is_unsent",
        "test_trap_a_host_with_an_empty_label_is_unsent",
    ],
    "a 2xx with a broken body is returned as text, other bodies raise anything": [
        "test_trap_a_2xx_without_what_was_asked_for_is_no_answer",
        "test_trap_a_body_that_is_not_whole_leaves_the_status_alone",
        "test_trap_a_log_that_looks_like_json_or_is_not_text_is_given_as_it_is",
        "test_trap_a_log_that_is_cut_says_so_after_its_whole_lines",
    ],
    "headers cut by a close are a success; half a 409 is lost": [
        "test_an_answer_that_goes_wrong_at_any_boundary_gives_the_predicted_result",
        "test_trap_a_head_that_cannot_be_read_strictly_is_no_answer",
    ],
    "an answer that came early is salvaged": ["test_trap_a_refusal_while_a_large_body_is_being_sent_is_salvaged"],
    "an interim answer leaves the real one for the next request": [
        "test_trap_an_interim_answer_is_none_and_its_connection_is_never_used_again",
        "test_trap_an_answer_sent_twice_is_not_the_next_requests_answer",
        "test_trap_a_peer_that_speaks_or_closes_before_it_was_asked_is_not_believed",
    ],
    "a client used across fork mixes answers": ["test_a_forked_process_sends_nothing_and_harms_nothing"],
    "a timeout is per socket operation, and 0 means none": [
        "test_a_deadline_ends_a_request_wherever_it_hangs",
        "test_a_context_that_has_ended_sends_nothing",
    ],
    "neither names nor several addresses are bounded": [
        "test_a_deadline_ends_a_request_wherever_it_hangs",
        "test_hung_look_ups_are_joined_and_at_most_four",
    ],
    "closing a client does not wake a blocked read": ["test_a_cancellation_ends_a_request_wherever_it_hangs"],
    "an abandoned worker still sends": ["test_trap_an_abandoned_call_can_never_send_later"],
    "names go into URLs as they are": ["test_trap_a_name_that_is_none_never_enters_a_url"],
    "NaN is sent, and a body is changed silently": [
        "test_trap_a_body_that_json_cannot_say_is_not_sent",
        "test_headers_say_what_is_sent",
    ],
    "proxies of the environment are used for loopback": [
        "test_trap_a_proxy_of_the_environment_is_never_used_for_loopback",
        "test_trap_a_proxy_of_no_use_is_refused_with_its_password_left_out",
    ],
    # Tokens.
    "a failing plugin, or one that says nonsense, makes an anonymous request": [
        "test_trap_a_plugin_that_fails_or_says_nonsense_sends_nothing"
    ],
    "a failing refresh sends the old token": ["test_trap_a_stale_token_is_never_sent_when_the_refresh_fails"],
    "a credential with little life left runs the plugin for every request": [
        "test_trap_a_credential_with_little_life_left_is_not_fetched_for_every_request"
    ],
    "a credential without an expiry is kept even after a 401": [
        "test_trap_a_credential_without_an_expiry_is_fetched_anew_after_a_401"
    ],
    "a plugin that hangs hangs the call": ["test_plugins_that_hang_leave_no_process"],
    "a token file that is empty, blank or of several lines is sent, or raises": [
        "test_trap_a_blank_or_unsendable_token_file_sends_nothing",
        "test_a_token_file_that_is_missing_or_no_file_sends_nothing",
    ],
    "a rotated token file is never read again": ["test_a_rotated_token_file_is_read_again_by_the_next_request"],
    "a pod's token that vanishes raises whatever it raises": [
        "test_trap_a_pods_token_that_vanishes_or_empties_sends_nothing"
    ],
    "an unknown user, a blank token or an unknown provider is nobody": [
        "test_trap_a_context_that_names_an_unknown_user_is_not_anonymous",
        "test_trap_a_blank_token_is_not_anonymous",
        "test_trap_auth_providers_are_refused_by_name",
        "test_trap_a_certificate_for_a_server_without_tls_is_refused",
    ],
    "an impersonation is left out": ["test_trap_impersonation_is_sent_and_not_left_out"],
    "a kubeconfig of no use raises a zoo, or loads": [
        "test_trap_whatever_is_wrong_with_a_kubeconfig_is_one_kind_of_problem",
        "test_trap_a_server_that_is_no_url_is_refused",
        "test_trap_certificates_of_no_use_are_found_at_once",
    ],
    "KUBECONFIG is read when the client is imported": [
        "test_trap_kubeconfig_of_the_environment_is_read_when_it_is_needed"
    ],
    "keys are left in temporary files": ["test_trap_no_key_material_is_left_on_disk"],
    # Watches, lists, discovery.
    "a watch spins on clean ends": ["test_trap_streams_that_bring_nothing_are_opened_more_and_more_slowly"],
    "a cut, malformed or blank line drops an event or gives None": [
        "test_trap_a_stream_that_breaks_loses_and_repeats_no_event"
    ],
    "one event and then a 410 loops for ever": [
        "test_trap_an_event_that_comes_again_before_each_expiry_is_no_progress",
        "test_trap_three_expiries_without_progress_list_anew_and_the_fourth_ends_it",
    ],
    "bookmarks do not move a watch": ["test_trap_a_bookmark_moves_the_watch_on"],
    "a silent peer hangs a watch": ["test_trap_a_silent_peer_is_noticed"],
    "a fresh continuation makes an inconsistent list": ["test_trap_a_fresh_continuation_of_a_410_is_never_used"],
    "null and missing items look alike": [
        "test_trap_an_empty_list_may_be_null",
        "test_trap_a_list_that_is_not_whole_is_no_answer",
    ],
    "a 503 of discovery says not served": ["test_trap_a_503_of_discovery_never_says_not_served"],
    "discovery costs requests for a miss, and believes a file anyone can plant": [
        "test_trap_discovery_is_one_request_and_keeps_nothing"
    ],
}

HERE = Path(__file__).parent
TESTS = {
    name for path in HERE.glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("trap", TRAPS)
def test_every_trap_has_its_test(trap):
    assert TRAPS[trap]
    assert set(TRAPS[trap]) <= TESTS


def test_every_traps_test_is_in_the_register():
    cited = {name for names in TRAPS.values() for name in names}
    assert {name for name in TESTS if name.startswith("test_trap_")} <= cited
