/* outcome.c - see outcome.h. */
#include "train/outcome.h"

void uni__outcome_init(uni__outcome *outcome)
{
    *outcome = (uni__outcome){ 0 };
    uni__cause_clear(&outcome->cause);
    pthread_mutex_init(&outcome->lock, NULL);
    pthread_cond_init(&outcome->cond, NULL);
}

void uni__outcome_clear(uni__outcome *outcome)
{
    uni__cause_clear(&outcome->cause);
    uni_value_free(outcome->kept);
    pthread_mutex_destroy(&outcome->lock);
    pthread_cond_destroy(&outcome->cond);
}

void uni__outcome_tell(uni__outcome *outcome)
{
    pthread_mutex_lock(&outcome->lock);
    outcome->over = true;
    pthread_cond_broadcast(&outcome->cond);
    pthread_mutex_unlock(&outcome->lock);
}

void uni__outcome_wait(uni__outcome *outcome)
{
    pthread_mutex_lock(&outcome->lock);
    while (!outcome->over)
        pthread_cond_wait(&outcome->cond, &outcome->lock);
    pthread_mutex_unlock(&outcome->lock);
}

bool uni__outcome_is_over(uni__outcome *outcome)
{
    pthread_mutex_lock(&outcome->lock);
    bool over = outcome->over;
    pthread_mutex_unlock(&outcome->lock);
    return over;
}
