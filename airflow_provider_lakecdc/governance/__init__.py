"""Decide what tables need and whom to tell: assessment, plan, alerts."""
