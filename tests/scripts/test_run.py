"""`make run`, the first thing that a newcomer types."""


def test_the_sample_campaign_is_sold(stack_make):
    told = stack_make().script("run")
    assert "10000 of 10000 issued, 10000 user coupons, none more than one: correct" in told
